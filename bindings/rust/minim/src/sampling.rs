// SPDX-License-Identifier: Apache-2.0
//! Sampling options.

use std::os::raw::c_char;

use minim_sys as sys;

use crate::constraint::Constraint;
use crate::error::{check, Result};
use crate::model::ModelHandle;
use crate::raw::{c_text, create, text_of};

#[derive(Clone, Copy, Debug)]
enum Value {
    Integer(i64),
    Number(f64),
}

/// The choice of tokens, and the end of the answer. The default is greedy, until the model ends its turn.
///
/// Values are checked when they are used: a call with an option out of range fails with `Invalid`.
#[derive(Clone, Default)]
pub struct Sampling {
    options: Vec<(String, Value)>,
    stops: Vec<String>,
    stop_tokens: Vec<i32>,
    biases: Vec<(i32, f32)>,
    breakers: Option<Vec<String>>,
    is_recommended: bool,
    constraint: Option<Constraint>,
}

pub(crate) struct Handle(pub(crate) *mut sys::minim_sampling);

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::minim_sampling_free(self.0) }
    }
}

impl Sampling {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an integer option by name; minim.h (`minim_sampling_set_i64`) lists them.
    pub fn integer(mut self, name: &str, value: i64) -> Self {
        self.options.push((name.into(), Value::Integer(value)));
        self
    }

    /// Sets a number option by name.
    pub fn number(mut self, name: &str, value: f64) -> Self {
        self.options.push((name.into(), Value::Number(value)));
        self
    }

    /// Takes what the checkpoint of the model recommends, which the other options replace.
    pub fn recommended(mut self) -> Self {
        self.is_recommended = true;
        self
    }

    /// Sets the texts that end a repetition for the options dry_*, in place of the default ones.
    pub fn dry_breakers(mut self, texts: &[&str]) -> Self {
        self.breakers = Some(texts.iter().map(|&text| text.into()).collect());
        self
    }

    /// Sets the maximum number of tokens of the answer.
    pub fn max_tokens(self, count: i64) -> Self {
        self.integer("max_tokens", count)
    }

    /// Sets the temperature. 0: always the likeliest token; 1: the model's own distribution.
    pub fn temperature(self, temperature: f64) -> Self {
        self.number("temperature", temperature)
    }

    /// Samples among the fewest tokens that together have this probability.
    pub fn top_p(self, share: f64) -> Self {
        self.number("top_p", share)
    }

    /// Samples among the k likeliest tokens.
    pub fn top_k(self, count: i64) -> Self {
        self.integer("top_k", count)
    }

    /// Sets the seed: the same seed gives the same text.
    pub fn seed(self, seed: u64) -> Self {
        self.integer("seed", seed as i64)
    }

    /// Reports log-probabilities, also of so many alternatives.
    pub fn logprobs(self, alternatives: i64) -> Self {
        self.integer("logprobs", 1).integer("top_logprobs", alternatives)
    }

    /// Ends the answer before this text.
    pub fn stop(mut self, text: &str) -> Self {
        self.stops.push(text.into());
        self
    }

    /// Ends the answer at this token.
    pub fn stop_token(mut self, id: i32) -> Self {
        self.stop_tokens.push(id);
        self
    }

    /// Adds a number to the logit of a token.
    pub fn logit_bias(mut self, id: i32, bias: f32) -> Self {
        self.biases.push((id, bias));
        self
    }

    /// Sets the constraint of the answer.
    pub fn constraint(mut self, constraint: &Constraint) -> Self {
        self.constraint = Some(constraint.clone());
        self
    }

    pub(crate) fn handle(&self, model: &ModelHandle) -> Result<Handle> {
        let handle = Handle(create(|out, err| unsafe { sys::minim_sampling_create(out, err) })?);
        if self.is_recommended {
            check(|err| unsafe { sys::minim_sampling_set_recommended(handle.0, model.handle, err) })?;
        }
        if let Some(breakers) = &self.breakers {
            let texts: Vec<*const c_char> = breakers.iter().map(|text| text.as_ptr().cast()).collect();
            let lengths: Vec<usize> = breakers.iter().map(|text| text.len()).collect();
            check(|err| unsafe {
                sys::minim_sampling_set_dry_breakers(handle.0, texts.as_ptr(), lengths.as_ptr(), texts.len(), err)
            })?;
        }
        for (name, value) in &self.options {
            let name = c_text(name, "the option")?;
            check(|err| unsafe {
                match *value {
                    Value::Integer(value) => sys::minim_sampling_set_i64(handle.0, name.as_ptr(), value, err),
                    Value::Number(value) => sys::minim_sampling_set_f64(handle.0, name.as_ptr(), value, err),
                }
            })?;
        }
        for text in &self.stops {
            check(|err| unsafe { sys::minim_sampling_add_stop(handle.0, text.as_ptr().cast(), text.len(), err) })?;
        }
        for &id in &self.stop_tokens {
            check(|err| unsafe { sys::minim_sampling_add_stop_token(handle.0, id, err) })?;
        }
        for &(id, bias) in &self.biases {
            check(|err| unsafe { sys::minim_sampling_add_logit_bias(handle.0, id, bias, err) })?;
        }
        if let Some(constraint) = &self.constraint {
            check(|err| unsafe { sys::minim_sampling_set_constraint(handle.0, constraint.raw(), err) })?;
        }
        Ok(handle)
    }
}

/// An option of [`Sampling::integer`] or [`Sampling::number`].
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct SamplingOption {
    pub name: String,
    pub help: String,
    pub is_integer: bool,
    pub minimum: f64,
    pub maximum: f64,
    pub default_value: f64,
}

/// Returns the options of sampling.
pub fn sampling_options() -> Result<Vec<SamplingOption>> {
    let option = |index| {
        let mut info = sys::minim_option_info::default();
        check(|err| unsafe { sys::minim_sampling_option(index, &mut info, err) })?;
        Ok(SamplingOption {
            name: unsafe { text_of(info.name) },
            help: unsafe { text_of(info.help) },
            is_integer: info.r#type == sys::MINIM_OPTION_I64,
            minimum: info.minimum,
            maximum: info.maximum,
            default_value: info.default_value,
        })
    };
    (0..unsafe { sys::minim_sampling_option_count() }).map(option).collect()
}
