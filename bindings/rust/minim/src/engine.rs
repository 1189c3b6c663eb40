// SPDX-License-Identifier: Apache-2.0
//! Many prompts at once.

use std::future::Future;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::error::{check, Result};
use crate::model::ModelHandle;
use crate::options::KvFormat;
use crate::raw::{c_path, take_tokens};
use crate::sampling::Sampling;
use crate::session::{FinishReason, Token};

/// The options of an [`Engine`].
#[derive(Clone, Copy, Default)]
pub struct EngineOptions(pub(crate) sys::minim_engine_params);

impl EngineOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the size of the KV cache in tokens, for all requests and cached prefixes together.
    pub fn kv_tokens(mut self, tokens: u64) -> Self {
        self.0.kv_tokens = tokens;
        self
    }

    /// Sets the format of the KV cache.
    pub fn kv(mut self, format: KvFormat) -> Self {
        self.0.k_format = format as i32;
        self.0.v_format = format as i32;
        self
    }

    /// Sets the maximum number of requests that run at once.
    pub fn max_requests(mut self, count: i32) -> Self {
        self.0.n_requests = count;
        self
    }

    /// Sets the maximum number of tokens of one request, prompt and answer.
    pub fn context(mut self, tokens: u64) -> Self {
        self.0.max_context = tokens;
        self
    }

    /// Sets the tokens of a step, at least the requests that run at once.
    pub fn batch(mut self, tokens: i32) -> Self {
        self.0.n_batch = tokens;
        self
    }

    /// Sets the maximum number of tokens of prompts in a step while answers are running.
    pub fn prompt_rows(mut self, tokens: i32) -> Self {
        self.0.n_prompt_rows = tokens;
        self
    }

    /// Sets whether fewer requests may run at once if memory is short.
    pub fn fewer_requests(mut self, may: bool) -> Self {
        self.0.fewer_requests = i32::from(may);
        self
    }

    /// Sets whether two small steps are computed before the first request.
    pub fn warm_up(mut self, warms: bool) -> Self {
        self.0.warm_up = i32::from(warms);
        self
    }

    /// Sets the limit in bytes of host memory for prompt states: pages of the prefix cache that must make room. `u64::MAX`: what is free.
    pub fn host_cache(mut self, bytes: u64) -> Self {
        self.0.host_cache_bytes = bytes;
        self
    }

    /// Sets whether finished requests stay in the prefix cache. The default is true.
    pub fn prefix_cache(mut self, keeps: bool) -> Self {
        self.0.forget_prefixes = i32::from(!keeps);
        self
    }
}

/// The options of a request.
#[derive(Clone, Copy, Default)]
pub struct RequestOptions {
    priority: i32,
    timeout: Option<Duration>,
}

impl RequestOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority; higher ones start first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time after which the answer is ended.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// The state of an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct EngineState {
    pub n_waiting: u64,
    pub n_running: u64,
    pub n_steps: u64,
    pub n_evaluated: u64,
    pub n_preempted: u64,
    pub n_pages: u64,
    pub n_pages_held: u64,
    pub n_pages_cached: u64,
    pub max_context: u64,
    pub n_requests: u64,
    pub n_batch: u64,
    pub host_cache_bytes: u64,
    pub n_host_pages: u64,
    pub n_host_stored: u64,
    pub n_host_restored: u64,
}

/// The state of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct RequestState {
    pub finish: Option<FinishReason>,
    pub n_prompt: u64,
    pub n_prompt_done: u64,
    pub n_cached: u64,
    pub n_generated: u64,
    pub n_reasoning: u64,
    pub n_preempted: u64,
    /// The token that ended the answer.
    pub stop_token: Option<i32>,
    /// The index of the stop text that ended it.
    pub stop_text: Option<usize>,
    pub queue_us: u64,
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

/// A complete answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Answer {
    pub ids: Vec<i32>,
    pub text: String,
    pub finish: Option<FinishReason>,
    /// Tokens of the prompt after the first, without text: option `prompt_logprobs`.
    pub prompt_tokens: Vec<Token>,
}

/// Serves many requests at once, on a thread of its own. Dropping it ends running requests. Any thread may use it.
pub struct Engine {
    handle: *mut sys::minim_engine,
    model: Arc<ModelHandle>,
}

// "any thread"
unsafe impl Send for Engine {}
unsafe impl Sync for Engine {}

impl Drop for Engine {
    fn drop(&mut self) {
        unsafe { sys::minim_engine_free(self.handle) }
    }
}

impl Engine {
    pub(crate) fn of_raw(handle: *mut sys::minim_engine, model: &Arc<ModelHandle>) -> Self {
        Engine { handle, model: Arc::clone(model) }
    }

    /// Submits a prompt and returns at once. Errors: `Invalid`, `ContextFull` (it can never fit).
    pub fn submit(&self, prompt: &[i32], sampling: &Sampling, options: RequestOptions) -> Result<Request> {
        Ok(self.submit_n(prompt, sampling, options, 1)?.remove(0))
    }

    /// Submits requests for `n_answers` (1 to 1024) answers to one prompt, which is evaluated once, all or none. With a seed, answer i has
    /// the seed plus i.
    pub fn submit_n(
        &self,
        prompt: &[i32],
        sampling: &Sampling,
        options: RequestOptions,
        n_answers: usize,
    ) -> Result<Vec<Request>> {
        let sampling = sampling.handle(&self.model)?;
        // The library refuses more than it has room for, before it writes any.
        let mut handles = vec![ptr::null_mut(); n_answers.clamp(1, 1025)];
        let notified = Arc::new(Notified(Mutex::new(vec![None; handles.len()])));
        let timeout_ms = options.timeout.map_or(0, |timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1));
        let params = sys::minim_request_params {
            priority: options.priority,
            timeout_ms,
            notify: Some(notify),
            notify_user_data: Arc::as_ptr(&notified) as *mut c_void,
            ..Default::default()
        };
        check(|err| unsafe {
            let (ids, count, out) = (prompt.as_ptr(), prompt.len(), handles.as_mut_ptr());
            let n_answers = n_answers.min(handles.len());
            sys::minim_engine_submit_n(self.handle, sampling.0, ids, count, &params, n_answers, out, err)
        })?;
        let request = |(place, handle)| Request {
            handle,
            notified: Arc::clone(&notified),
            place,
            has_ended: false,
            _model: Arc::clone(&self.model),
        };
        Ok(handles.into_iter().enumerate().map(request).collect())
    }

    /// Refuses new requests and waits for the running ones, at most for `timeout`. Returns whether they are done.
    pub fn drain(&self, timeout: Duration) -> Result<bool> {
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        let mut done = 0;
        check(|err| unsafe { sys::minim_engine_drain(self.handle, timeout_ms, &mut done, err) })?;
        Ok(done != 0)
    }

    /// Writes the prefix cache to a file.
    pub fn save_prefixes(&self, path: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|err| unsafe { sys::minim_engine_save_prefixes(self.handle, path.as_ptr(), Cancel::raw(cancel), err) })
    }

    /// Adds a file of [`save_prefixes`](Self::save_prefixes), as far as there is room. Returns the number of pages read.
    pub fn load_prefixes(&self, path: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<u64> {
        let path = c_path(path.as_ref())?;
        let (cancel, mut n_pages) = (Cancel::raw(cancel), 0);
        check(|err| unsafe { sys::minim_engine_load_prefixes(self.handle, path.as_ptr(), cancel, &mut n_pages, err) })?;
        Ok(n_pages)
    }

    /// Writes the longest cached prefix of `tokens` to a file of its own. Returns its length.
    pub fn save_prefix(&self, tokens: &[i32], path: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<u64> {
        let path = c_path(path.as_ref())?;
        let (cancel, mut n_tokens) = (Cancel::raw(cancel), 0);
        check(|err| unsafe {
            let (ids, count) = (tokens.as_ptr(), tokens.len());
            sys::minim_engine_save_prefix(self.handle, ids, count, path.as_ptr(), cancel, &mut n_tokens, err)
        })?;
        Ok(n_tokens)
    }

    /// Reads a file of [`save_prefix`](Self::save_prefix), for which other prefixes make room. Returns the tokens that are cached then.
    pub fn load_prefix(&self, path: impl AsRef<Path>, cancel: Option<&Cancel>) -> Result<Vec<i32>> {
        let path = c_path(path.as_ref())?;
        let (cancel, mut tokens) = (Cancel::raw(cancel), ptr::null_mut());
        check(|err| unsafe { sys::minim_engine_load_prefix(self.handle, path.as_ptr(), cancel, &mut tokens, err) })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Drops what only these tokens have in the prefix cache. Returns how many of them were dropped.
    pub fn erase_prefix(&self, tokens: &[i32]) -> Result<u64> {
        let mut n_tokens = 0;
        check(|err| unsafe { sys::minim_engine_erase_prefix(self.handle, tokens.as_ptr(), tokens.len(), &mut n_tokens, err) })?;
        Ok(n_tokens)
    }

    /// Returns the current state.
    pub fn state(&self) -> Result<EngineState> {
        let mut state = sys::minim_engine_state::default();
        check(|err| unsafe { sys::minim_engine_get_state(self.handle, &mut state, err) })?;
        Ok(EngineState {
            n_waiting: state.n_waiting,
            n_running: state.n_running,
            n_steps: state.n_steps,
            n_evaluated: state.n_evaluated,
            n_preempted: state.n_preempted,
            n_pages: state.n_pages,
            n_pages_held: state.n_pages_held,
            n_pages_cached: state.n_pages_cached,
            max_context: state.max_context,
            n_requests: state.n_requests,
            n_batch: state.n_batch,
            host_cache_bytes: state.host_cache_bytes,
            n_host_pages: state.n_host_pages,
            n_host_stored: state.n_host_stored,
            n_host_restored: state.n_host_restored,
        })
    }
}

/// The tasks that wait for something new, one for each of the requests that were submitted together.
struct Notified(Mutex<Vec<Option<Waker>>>);

impl Notified {
    fn wakers(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn notify(user_data: *mut c_void) {
    let notified = &*user_data.cast::<Notified>();
    let wakers: Vec<Waker> = notified.wakers().iter_mut().filter_map(Option::take).collect();
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// A request made by [`Engine::submit`]; dropping it cancels it. As an iterator it blocks until each token; in a task use
/// [`next_token`](Self::next_token) or [`poll_token`](Self::poll_token). The waker must not poll the task itself: it is called
/// on the engine's thread, which must not read tokens.
pub struct Request {
    handle: *mut sys::minim_request,
    notified: Arc<Notified>, // `notify` is not called any more once the handle is released
    place: usize,            // in `notified`
    has_ended: bool,
    _model: Arc<ModelHandle>,
}

// "any thread; minim_request_next one thread at a time", which asks for &mut.
unsafe impl Send for Request {}
unsafe impl Sync for Request {}

impl Drop for Request {
    fn drop(&mut self) {
        unsafe { sys::minim_request_free(self.handle) }
    }
}

impl Request {
    /// Returns the next token, `None` after the last one. If pending, the task is woken when there is something new.
    pub fn poll_token(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Token>>> {
        // Before asking: what comes in between wakes the task.
        self.notified.wakers()[self.place] = Some(context.waker().clone());
        match self.next_within(0) {
            Poll::Ready(token) => {
                self.notified.wakers()[self.place].take();
                Poll::Ready(token)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Returns a future for the next token, `None` after the last one. Dropping it loses no token.
    pub fn next_token(&mut self) -> NextToken<'_> {
        NextToken(self)
    }

    /// Blocks until the answer is complete and returns it.
    pub fn answer(&mut self) -> Result<Answer> {
        let (mut ids, mut text, mut prompt_tokens) = (Vec::new(), String::new(), Vec::new());
        for token in &mut *self {
            let token = token?;
            if token.prompt_rank > 0 {
                prompt_tokens.push(token);
                continue;
            }
            ids.push(token.id);
            text.push_str(&token.text);
        }
        Ok(Answer { ids, text, finish: self.state()?.finish, prompt_tokens })
    }

    /// Ends the answer after the tokens reported so far.
    pub fn cancel(&self) {
        unsafe { sys::minim_request_cancel(self.handle) }
    }

    /// Returns the current state.
    pub fn state(&self) -> Result<RequestState> {
        let mut state = sys::minim_request_state::default();
        check(|err| unsafe { sys::minim_request_get_state(self.handle, &mut state, err) })?;
        Ok(RequestState {
            finish: FinishReason::of_number(state.finish),
            n_prompt: state.n_prompt,
            n_prompt_done: state.n_prompt_done,
            n_cached: state.n_cached,
            n_generated: state.n_generated,
            n_reasoning: state.n_reasoning,
            n_preempted: state.n_preempted,
            stop_token: (state.stop_token >= 0).then_some(state.stop_token),
            stop_text: usize::try_from(state.stop_text).ok(),
            queue_us: state.queue_us,
            prompt_us: state.prompt_us,
            generate_us: state.generate_us,
            seed: state.seed,
            stop_logprob: state.stop_logprob,
            n_drafted: state.n_drafted,
            n_drafts_accepted: state.n_drafts_accepted,
        })
    }

    fn next_within(&mut self, timeout_ms: i64) -> Poll<Option<Result<Token>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let (mut token, mut next) = (sys::minim_token::default(), sys::MINIM_NEXT_END);
        let called = check(|err| unsafe { sys::minim_request_next(self.handle, timeout_ms, &mut token, &mut next, err) });
        if let Err(error) = called {
            self.has_ended = true;
            return Poll::Ready(Some(Err(error)));
        }
        match next {
            sys::MINIM_NEXT_PENDING => Poll::Pending,
            sys::MINIM_NEXT_TOKEN => Poll::Ready(Some(Ok(unsafe { Token::of_raw(&token) }))),
            _ => {
                self.has_ended = true;
                Poll::Ready(None)
            }
        }
    }
}

impl Iterator for Request {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Poll::Ready(token) = self.next_within(-1) {
                return token;
            }
        }
    }
}

/// The future of [`Request::next_token`].
pub struct NextToken<'a>(&'a mut Request);

impl Future for NextToken<'_> {
    type Output = Option<Result<Token>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_token(context)
    }
}
