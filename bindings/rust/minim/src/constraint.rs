// SPDX-License-Identifier: Apache-2.0
//! Constraints on answers: structured output.

use std::os::raw::c_char;
use std::sync::Arc;

use minim_sys as sys;

use crate::error::{check, Result};
use crate::model::ModelHandle;
use crate::raw::{c_text, create, pointer_or_null};

/// The kinds of a [`Constraint`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ConstraintForm<'a> {
    /// A JSON Schema, as JSON.
    Schema(&'a str),
    /// A regular expression that the whole answer must match.
    Regex(&'a str),
    /// A grammar in GBNF, whose rule `root` is the whole answer.
    Grammar(&'a str),
    /// Texts, one of which must be the answer.
    Choices(&'a [&'a str]),
    /// The tools of a chat request, as JSON, to be called: any of them or the one that is named, once or several times.
    Tools {
        /// In the format of OpenAI's API.
        tools: &'a str,
        /// The name of the tool to call.
        name: Option<&'a str>,
        /// Allow only one call.
        single: bool,
    },
}

/// The options of a [`Constraint`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstraintOptions<'a> {
    /// Anything is allowed up to this token ("</think>").
    pub starts_after: Option<&'a str>,
    /// Instead of `starts_after`: the answer may begin with reasoning in the model's markup, which the prompt leaves to the model.
    pub may_reason: bool,
    /// For tools: the answer may be text without a call, too; a call, once the model opens it, fits the tools.
    pub calls_are_optional: bool,
    /// For tools: ignore keywords that cannot be enforced, with a warning in the log.
    pub relax: bool,
}

struct Handle {
    handle: *mut sys::minim_constraint,
    _model: Arc<ModelHandle>,
}

// "immutable, any thread"
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::minim_constraint_free(self.handle) }
    }
}

/// A constraint on answers; made by [`Model::constraint`](crate::Model::constraint), usable for any number of answers. Clones share
/// it.
#[derive(Clone)]
pub struct Constraint(Arc<Handle>);

impl Constraint {
    pub(crate) fn new(model: &Arc<ModelHandle>, form: ConstraintForm<'_>, options: ConstraintOptions<'_>) -> Result<Self> {
        let kept = Arc::clone(model);
        let model = model.handle;
        let starts_after = options.starts_after.map(|text| c_text(text, "starts_after")).transpose()?;
        let params = sys::minim_constraint_params {
            starts_after: pointer_or_null(&starts_after),
            calls_are_optional: i32::from(options.calls_are_optional),
            relax: i32::from(options.relax),
            may_reason: i32::from(options.may_reason),
            ..Default::default()
        };
        let handle = match form {
            ConstraintForm::Schema(schema) => {
                let schema = c_text(schema, "the schema")?;
                create(|out, err| unsafe { sys::minim_constraint_from_schema(model, schema.as_ptr(), &params, out, err) })
            }
            ConstraintForm::Regex(pattern) => create(|out, err| unsafe {
                sys::minim_constraint_from_regex_n(model, pattern.as_ptr().cast(), pattern.len(), &params, out, err)
            }),
            ConstraintForm::Grammar(text) => create(|out, err| unsafe {
                sys::minim_constraint_from_grammar_n(model, text.as_ptr().cast(), text.len(), &params, out, err)
            }),
            ConstraintForm::Choices(choices) => {
                let texts: Vec<*const c_char> = choices.iter().map(|text| text.as_ptr().cast()).collect();
                let lengths: Vec<usize> = choices.iter().map(|text| text.len()).collect();
                create(|out, err| unsafe {
                    let (texts, lengths, count) = (texts.as_ptr(), lengths.as_ptr(), choices.len());
                    sys::minim_constraint_from_choices_n(model, texts, lengths, count, &params, out, err)
                })
            }
            ConstraintForm::Tools { tools, name, single } => {
                let tools = c_text(tools, "the tools")?;
                let name = name.map(|name| c_text(name, "the tool's name")).transpose()?;
                create(|out, err| unsafe {
                    let name = pointer_or_null(&name);
                    sys::minim_constraint_from_tools(model, tools.as_ptr(), name, i32::from(single), &params, out, err)
                })
            }
        }?;
        Ok(Constraint(Arc::new(Handle { handle, _model: kept })))
    }

    /// Returns whether the constraint allows the whole text.
    pub fn matches(&self, text: &str) -> Result<bool> {
        let mut matches = 0;
        check(|err| unsafe {
            sys::minim_constraint_matches(self.0.handle, text.as_ptr().cast(), text.len(), &mut matches, err)
        })?;
        Ok(matches != 0)
    }

    pub(crate) fn raw(&self) -> *const sys::minim_constraint {
        self.0.handle
    }
}
