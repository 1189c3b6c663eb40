// SPDX-License-Identifier: Apache-2.0
//! Parsed answers: reasoning, text and tool calls.

use minim_sys as sys;

use crate::error::{check, Result};
use crate::raw::{c_text, create, pointer_or_null, text_of_length};

/// A parsed piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// Text of the model's reasoning.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// Part of a call: only the first part has the name; the arguments are pieces of JSON.
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
#[repr(i32)]
pub enum Finish {
    /// The model ended its turn.
    Stop = sys::MINIM_FINISH_END,
    /// The output was cut; an incomplete call is dropped.
    Length = sys::MINIM_FINISH_LENGTH,
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
        let tools = tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let params = sys::minim_output_parser_params {
            tools: pointer_or_null(&tools),
            starts_in_content: i32::from(!starts_in_reasoning),
            ..Default::default()
        };
        create(|out, err| unsafe { sys::minim_output_parser_create(&params, out, err) }).map(OutputParser)
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
