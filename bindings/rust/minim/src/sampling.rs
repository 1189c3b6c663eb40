// SPDX-License-Identifier: Apache-2.0
//! Sampling options.

use minim_sys as sys;

use crate::constraint::Constraint;
use crate::error::{check, Result};
use crate::raw::{c_text, create};

#[derive(Clone, Copy, Debug)]
enum Value {
    Integer(i64),
    Number(f64),
}

/// How tokens are chosen, and what ends the answer. The default is greedy, until the model ends its turn.
///
/// Values are checked when they are used: a call with an option out of range fails with `Invalid`.
#[derive(Clone, Default)]
pub struct Sampling {
    options: Vec<(String, Value)>,
    stops: Vec<String>,
    stop_tokens: Vec<i32>,
    biases: Vec<(i32, f32)>,
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

    /// Sets the most tokens of the answer.
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

    pub(crate) fn handle(&self) -> Result<Handle> {
        let handle = Handle(create(|out, err| unsafe { sys::minim_sampling_create(out, err) })?);
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
