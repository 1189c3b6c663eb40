// SPDX-License-Identifier: Apache-2.0
//! The tokens and the KV cache of one conversation.

use std::os::unix::io::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::error::{check, Result};
use crate::model::ModelHandle;
use crate::raw::{c_path, create, take_tokens, text_of_length};
use crate::sampling::Sampling;

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Token {
    /// Its id.
    pub id: i32,
    /// Whole UTF-8; empty while a sequence or a possible stop text is held back.
    pub text: String,
    /// 0 unless log-probabilities were requested.
    pub logprob: f32,
    /// Ids and log-probabilities of alternatives.
    pub top: Vec<(i32, f32)>,
    /// 0: a generated token. Else a token of the prompt (option `prompt_logprobs`), and its rank: 1 for the likeliest.
    pub prompt_rank: i32,
}

impl Token {
    pub(crate) unsafe fn of_raw(token: &sys::minim_token) -> Self {
        let top = match token.n_top {
            0 => Vec::new(),
            count => std::slice::from_raw_parts(token.top, count as usize).iter().map(|one| (one.id, one.logprob)).collect(),
        };
        Token {
            id: token.id,
            text: text_of_length(token.text, token.text_length).unwrap_or_default(),
            logprob: token.logprob,
            top,
            prompt_rank: token.prompt_rank,
        }
    }
}

/// The reason that an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum FinishReason {
    End,
    StopText,
    Length,
    ContextFull,
    Stopped,
    Timeout,
    ToolCalls,
    Loop,
}

impl FinishReason {
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        Some(match number {
            sys::MINIM_FINISH_END => FinishReason::End,
            sys::MINIM_FINISH_STOP_TEXT => FinishReason::StopText,
            sys::MINIM_FINISH_LENGTH => FinishReason::Length,
            sys::MINIM_FINISH_CONTEXT_FULL => FinishReason::ContextFull,
            sys::MINIM_FINISH_STOPPED => FinishReason::Stopped,
            sys::MINIM_FINISH_TIMEOUT => FinishReason::Timeout,
            sys::MINIM_FINISH_TOOL_CALLS => FinishReason::ToolCalls,
            sys::MINIM_FINISH_LOOP => FinishReason::Loop,
            _ => return None,
        })
    }
}

/// The state of the last generation of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct GenerationState {
    pub finish: Option<FinishReason>,
    pub n_prompt: u64,
    pub n_generated: u64,
    pub n_reasoning: u64,
    /// The token that ended the answer.
    pub stop_token: Option<i32>,
    /// The index of the stop text that ended it.
    pub stop_text: Option<usize>,
    pub prompt_us: u64,
    pub generate_us: u64,
    pub seed: u64,
    /// The log-probability of `stop_token`; 0 unless log-probabilities were requested.
    pub stop_logprob: f32,
    /// Draft tokens that were checked.
    pub n_drafted: u64,
    /// Those of them that became tokens of the text.
    pub n_drafts_accepted: u64,
}

/// One conversation. Used by one thread at a time; it may move between threads.
pub struct Session {
    handle: *mut sys::minim_session,
    model: Arc<ModelHandle>,
}

// "one thread at a time": it may move, but not be shared.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        unsafe { sys::minim_session_free(self.handle) }
    }
}

impl Session {
    pub(crate) fn of_raw(handle: *mut sys::minim_session, model: &Arc<ModelHandle>) -> Self {
        Session { handle, model: Arc::clone(model) }
    }

    pub(crate) fn raw(&mut self) -> *mut sys::minim_session {
        self.handle
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> u64 {
        unsafe { sys::minim_session_token_count(self.handle) as u64 }
    }

    /// Returns whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of tokens that it can have.
    pub fn context_size(&self) -> u64 {
        unsafe { sys::minim_session_context_size(self.handle) as u64 }
    }

    /// Returns the bytes of the KV cache for the whole context.
    pub fn kv_bytes(&self) -> u64 {
        unsafe { sys::minim_session_kv_bytes(self.handle) }
    }

    /// Returns the token ids.
    pub fn tokens(&self) -> Result<Vec<i32>> {
        let tokens = create(|out, err| unsafe { sys::minim_session_get_tokens(self.handle, out, err) })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Forgets every token from position `count` on.
    pub fn truncate(&mut self, count: usize) -> Result<()> {
        check(|err| unsafe { sys::minim_session_truncate(self.handle, count as _, err) })
    }

    /// Returns a second session with the same tokens, which shares their KV cache with this one.
    pub fn fork(&mut self) -> Result<Session> {
        let handle = create(|out, err| unsafe { sys::minim_session_fork(self.handle, out, err) })?;
        Ok(Session::of_raw(handle, &self.model))
    }

    /// Writes the session to a file, for [`Model::restore`](crate::Model::restore). After an error, the old file is unchanged.
    pub fn save(&mut self, path: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|err| unsafe { sys::minim_session_save(self.handle, path.as_ptr(), Cancel::raw(cancel), err) })
    }

    /// Returns the session as bytes, for [`Model::restore_bytes`](crate::Model::restore_bytes).
    pub fn save_bytes(&mut self, cancel: Option<&Cancel>) -> Result<Vec<u8>> {
        let (cancel, mut bytes) = (Cancel::raw(cancel), Vec::new());
        let mut size = 0;
        check(|err| unsafe { sys::minim_session_save_memory(self.handle, ptr::null_mut(), 0, &mut size, cancel, err) })?;
        bytes.resize(size, 0);
        check(|err| unsafe {
            sys::minim_session_save_memory(self.handle, bytes.as_mut_ptr().cast(), bytes.len(), &mut size, cancel, err)
        })?;
        Ok(bytes)
    }

    /// Writes the session to an open file, pipe or socket, from its position on.
    pub fn save_fd(&mut self, file: impl AsFd, cancel: Option<&Cancel>) -> Result<()> {
        let file = file.as_fd().as_raw_fd();
        check(|err| unsafe { sys::minim_session_save_fd(self.handle, file, Cancel::raw(cancel), err) })
    }

    /// Appends and evaluates tokens; `logits` [n_vocab] receives those of the last one; empty: they are not wanted.
    pub fn eval(&mut self, ids: &[i32], logits: &mut [f32], cancel: Option<&Cancel>) -> Result<()> {
        self.eval_rows(ids, false, logits, cancel)
    }

    /// Appends and evaluates tokens; `logits` [ids, n_vocab], row by row, receives those of every one.
    pub fn eval_all(&mut self, ids: &[i32], logits: &mut [f32], cancel: Option<&Cancel>) -> Result<()> {
        self.eval_rows(ids, true, logits, cancel)
    }

    fn eval_rows(&mut self, ids: &[i32], all: bool, logits: &mut [f32], cancel: Option<&Cancel>) -> Result<()> {
        let cancel = Cancel::raw(cancel);
        check(|err| unsafe {
            let out = if logits.is_empty() { ptr::null_mut() } else { logits.as_mut_ptr() };
            let room = logits.len();
            sys::minim_session_eval(self.handle, ids.as_ptr(), ids.len(), i32::from(all), out, room, cancel, err)
        })
    }

    /// Evaluates the prompt and returns an iterator over the answer's tokens. `cancel` ends the prompt and the tokens.
    pub fn generate<'a>(&'a mut self, prompt: &[i32], sampling: &Sampling, cancel: Option<&'a Cancel>) -> Result<Generation<'a>> {
        let sampling = sampling.handle(&self.model)?;
        check(|err| unsafe {
            let switch = Cancel::raw(cancel);
            sys::minim_generate_begin(self.handle, sampling.0, prompt.as_ptr(), prompt.len(), switch, err)
        })?;
        Ok(Generation { session: self, cancel, has_ended: false })
    }

    /// Returns the state of the last generation.
    pub fn state(&self) -> Result<GenerationState> {
        let mut result = sys::minim_generate_result::default();
        check(|err| unsafe { sys::minim_generate_state(self.handle, &mut result, err) })?;
        Ok(GenerationState {
            finish: FinishReason::of_number(result.finish),
            n_prompt: result.n_prompt,
            n_generated: result.n_generated,
            n_reasoning: result.n_reasoning,
            stop_token: (result.stop_token >= 0).then_some(result.stop_token),
            stop_text: usize::try_from(result.stop_text).ok(),
            prompt_us: result.prompt_us,
            generate_us: result.generate_us,
            seed: result.seed,
            stop_logprob: result.stop_logprob,
            n_drafted: result.n_drafted,
            n_drafts_accepted: result.n_drafts_accepted,
        })
    }
}

/// An iterator over the tokens of one answer. It ends after an error.
pub struct Generation<'a> {
    session: &'a mut Session,
    cancel: Option<&'a Cancel>,
    has_ended: bool,
}

impl Iterator for Generation<'_> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let (mut token, mut has_token) = (sys::minim_token::default(), 0);
        let called = check(|err| unsafe {
            let cancel = Cancel::raw(self.cancel);
            sys::minim_generate_next(self.session.handle, &mut token, &mut has_token, cancel, err)
        });
        self.has_ended = called.is_err() || has_token == 0;
        match called {
            Err(error) => Some(Err(error)),
            Ok(()) if has_token == 0 => None,
            Ok(()) => Some(Ok(unsafe { Token::of_raw(&token) })),
        }
    }
}
