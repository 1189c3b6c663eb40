// SPDX-License-Identifier: Apache-2.0
//! Parsed answers: reasoning, text and tool calls.

use minim_sys as sys;

use crate::error::{check, Result};
use crate::raw::{c_text, create, pointer_or_null, text_of_length};
use crate::session::FinishReason;

/// A parsed piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// Text of the model's reasoning.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// Part of a call: only the first part has the name; the arguments are pieces of JSON.
    #[non_exhaustive]
    ToolCall {
        /// The index of the call in the answer.
        index: i32,
        /// The tool's name.
        name: Option<String>,
        /// A piece of the arguments.
        arguments: String,
    },
}

/// The end of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Finish {
    /// The model ended its turn.
    Stop = sys::MINIM_FINISH_END,
    /// The output was cut; an incomplete call is dropped.
    Length = sys::MINIM_FINISH_LENGTH,
}

/// The form in which reasoning is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Reasoning {
    /// Separate from the content, without the tags.
    #[default]
    Split = sys::MINIM_REASONING_SPLIT,
    /// In the content, with the tags: the opening one is put before it.
    AppendThink = sys::MINIM_REASONING_APPEND_THINK,
    /// In the content, as the model wrote it.
    None = sys::MINIM_REASONING_NONE,
}

/// How a model marks reasoning and calls of tools in its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum ChatFormat {
    /// Of MiniMax-M2.
    #[default]
    M2 = sys::MINIM_CHAT_FORMAT_M2,
    /// Of MiniMax-M3.
    M3 = sys::MINIM_CHAT_FORMAT_M3,
}

/// The markup of a model's chat format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatMarkup {
    /// The format itself.
    pub format: ChatFormat,
    /// The token that begins reasoning.
    pub think_begin: &'static str,
    /// The token that ends it: for `starts_after` of a constraint.
    pub think_end: &'static str,
    /// The token that calls begin with.
    pub call_begin: &'static str,
}

/// The options of parsing output.
#[derive(Clone, Copy, Debug)]
pub struct OutputOptions<'a> {
    /// The tools of the request, as JSON; `None`: no call is recognised.
    pub tools: Option<&'a str>,
    /// The form in which reasoning is returned.
    pub reasoning: Reasoning,
    /// True if the prompt ends in an open think block.
    pub starts_in_reasoning: bool,
    /// That of the model: [`Model::chat_markup`](crate::Model::chat_markup).
    pub format: ChatFormat,
}

impl Default for OutputOptions<'_> {
    fn default() -> Self {
        OutputOptions { tools: None, reasoning: Reasoning::Split, starts_in_reasoning: true, format: ChatFormat::M2 }
    }
}

impl OutputOptions<'_> {
    fn call<T>(&self, call: impl FnOnce(*const sys::minim_output_parser_params) -> Result<T>) -> Result<T> {
        let tools = self.tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let params = sys::minim_output_parser_params {
            tools: pointer_or_null(&tools),
            reasoning: self.reasoning as i32,
            starts_in_content: i32::from(!self.starts_in_reasoning),
            format: self.format as i32,
            ..Default::default()
        };
        call(&params)
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

/// A complete parsed output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Output {
    pub content: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    /// `ToolCalls` if there is a call.
    pub finish: Option<FinishReason>,
}

struct OutputHandle(*mut sys::minim_output);

impl Drop for OutputHandle {
    fn drop(&mut self) {
        unsafe { sys::minim_output_free(self.0) }
    }
}

/// Parses a complete output. A call that was cut is left out.
pub fn parse_output(text: &str, finish: Finish, options: OutputOptions<'_>) -> Result<Output> {
    let handle = options.call(|params| {
        create(|out, err| unsafe { sys::minim_output_parse(params, text.as_ptr().cast(), text.len(), finish as i32, out, err) })
    });
    let output = OutputHandle(handle?);
    let mut info = sys::minim_output_info::default();
    check(|err| unsafe { sys::minim_output_get_info(output.0, &mut info, err) })?;
    let tool_call = |index| {
        let mut call = sys::minim_tool_call::default();
        check(|err| unsafe { sys::minim_output_get_tool_call(output.0, index, &mut call, err) })?;
        let text = |text, length| unsafe { text_of_length(text, length) }.unwrap_or_default();
        Ok(ToolCall { name: text(call.name, call.name_length), arguments: text(call.arguments, call.arguments_length) })
    };
    Ok(Output {
        content: unsafe { text_of_length(info.content, info.content_length) },
        reasoning: unsafe { text_of_length(info.reasoning, info.reasoning_length) },
        tool_calls: (0..info.n_tool_calls).map(tool_call).collect::<Result<_>>()?,
        finish: FinishReason::of_number(info.finish_reason),
    })
}

/// Parses output while it is generated.
pub struct OutputParser(*mut sys::minim_output_parser);

// "one thread at a time": it may move.
unsafe impl Send for OutputParser {}

impl Drop for OutputParser {
    fn drop(&mut self) {
        unsafe { sys::minim_output_parser_free(self.0) }
    }
}

impl OutputParser {
    /// Makes a parser. `tools`: of the request, as JSON. `starts_in_reasoning`: the prompt ends in an open think block.
    pub fn new(tools: Option<&str>, starts_in_reasoning: bool) -> Result<Self> {
        Self::with(OutputOptions { tools, starts_in_reasoning, ..Default::default() })
    }

    /// Makes a parser.
    pub fn with(options: OutputOptions<'_>) -> Result<Self> {
        options.call(|params| create(|out, err| unsafe { sys::minim_output_parser_create(params, out, err) })).map(OutputParser)
    }

    /// Adds bytes and returns the deltas.
    pub fn feed(&mut self, text: &str) -> Result<Vec<Delta>> {
        let mut count = 0;
        check(|err| unsafe { sys::minim_output_parser_feed(self.0, text.as_ptr().cast(), text.len(), &mut count, err) })?;
        self.deltas(count)
    }

    /// Ends the output; returns the last deltas, and whether the answer is tool calls.
    pub fn finish(&mut self, finish: Finish) -> Result<(Vec<Delta>, bool)> {
        let (mut count, mut reason) = (0, 0);
        check(|err| unsafe { sys::minim_output_parser_finish(self.0, finish as i32, &mut count, &mut reason, err) })?;
        Ok((self.deltas(count)?, reason == sys::MINIM_FINISH_TOOL_CALLS))
    }

    fn deltas(&self, count: usize) -> Result<Vec<Delta>> {
        (0..count).map(|index| self.delta(index)).collect()
    }

    fn delta(&self, index: usize) -> Result<Delta> {
        let mut delta = sys::minim_output_delta::default();
        check(|err| unsafe { sys::minim_output_parser_delta(self.0, index, &mut delta, err) })?;
        let text = unsafe { text_of_length(delta.text, delta.length) }.unwrap_or_default();
        Ok(match delta.kind {
            sys::MINIM_DELTA_REASONING => Delta::Reasoning(text),
            sys::MINIM_DELTA_CONTENT => Delta::Content(text),
            _ => Delta::ToolCall {
                index: delta.index,
                name: unsafe { text_of_length(delta.name, delta.name_length) },
                arguments: text,
            },
        })
    }
}
