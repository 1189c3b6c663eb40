// SPDX-License-Identifier: Apache-2.0
//! Models, tokens and chat prompts.

use std::os::unix::io::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::checkpoint::Checkpoint;
use crate::constraint::{Constraint, ConstraintForm, ConstraintOptions};
use crate::decoder::Decoder;
use crate::engine::{Engine, EngineOptions};
use crate::error::{check, Result};
use crate::options::{ModelOptions, SessionOptions, Specials};
use crate::output::{ChatFormat, ChatMarkup};
use crate::raw::{c_path, c_text, create, pointer_or_null, take_text, take_tokens, text_of};
use crate::runtime::{Runtime, Shared};
use crate::session::Session;

/// The properties of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // minim.h has a line for each
pub struct ModelInfo {
    pub name: String,
    pub backend: String,
    pub placement: String,
    /// The number of this process; the others follow process 0.
    pub process: i32,
    pub n_processes: i32,
    pub n_ranks: i32,
    pub n_layer: i32,
    pub hidden: i64,
    pub n_expert: i32,
    pub n_expert_used: i32,
    pub n_vocab: i64,
    pub n_context_train: i64,
    pub n_parameters: i64,
    pub weight_bytes: u64,
}

pub(crate) struct ModelHandle {
    pub(crate) handle: *mut sys::minim_model,
    pub(crate) runtime: Arc<Shared>,
}

// "immutable, any thread"
unsafe impl Send for ModelHandle {}
unsafe impl Sync for ModelHandle {}

impl Drop for ModelHandle {
    fn drop(&mut self) {
        unsafe { sys::minim_model_close(self.handle) }
    }
}

/// A loaded model. Any thread may use it. Clones share it, and its sessions and engines keep it.
#[derive(Clone)]
pub struct Model(pub(crate) Arc<ModelHandle>);

/// The options of rendering a conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatOptions<'a> {
    /// JSON in the format of OpenAI's API.
    pub tools: Option<&'a str>,
    /// Variables of the template, as a JSON object.
    pub kwargs: Option<&'a str>,
    /// One of the checkpoint's templates.
    pub template: Option<&'a str>,
    /// Render a message without content as one with empty text.
    pub null_content_is_empty: bool,
    /// Close the think block that the prompt opens.
    pub thinking_off: bool,
    /// The answer continues the last message, the assistant's.
    pub continue_final_message: bool,
}

impl ChatOptions<'_> {
    fn with<T>(&self, call: impl FnOnce(*const sys::minim_chat_params) -> Result<T>) -> Result<T> {
        let text = |text: Option<&str>, what| text.map(|text| c_text(text, what)).transpose();
        let (tools, kwargs) = (text(self.tools, "tools")?, text(self.kwargs, "kwargs")?);
        let template = text(self.template, "the template")?;
        let params = sys::minim_chat_params {
            null_content: i32::from(self.null_content_is_empty), // MINIM_NULL_CONTENT_EMPTY
            tools: pointer_or_null(&tools),
            kwargs: pointer_or_null(&kwargs),
            template_name: pointer_or_null(&template),
            thinking_off: i32::from(self.thinking_off),
            continue_final_message: i32::from(self.continue_final_message),
            ..Default::default()
        };
        call(&params)
    }
}

impl Model {
    /// Opens a GGUF file or a safetensors folder. Errors: `NotFound`, `Io`, `Format` with a reason, `Unsupported`, `OutOfMemory`,
    /// `OutOfDeviceMemory`, `Cancelled`.
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>, options: ModelOptions<'_>) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        options.with(|params, cancel| {
            let handle =
                create(|out, err| unsafe { sys::minim_model_open(runtime.0.handle, path.as_ptr(), params, cancel, out, err) })?;
            Ok(Model(Arc::new(ModelHandle { handle, runtime: Arc::clone(&runtime.0) })))
        })
    }

    /// Opens an open GGUF file or safetensors folder, which may be closed afterwards.
    pub fn open_fd(runtime: &Runtime, file: impl AsFd, options: ModelOptions<'_>) -> Result<Self> {
        let file = file.as_fd().as_raw_fd();
        options.with(|params, cancel| {
            let handle =
                create(|out, err| unsafe { sys::minim_model_open_fd(runtime.0.handle, file, params, cancel, out, err) })?;
            Ok(Model(Arc::new(ModelHandle { handle, runtime: Arc::clone(&runtime.0) })))
        })
    }

    /// Returns the headers that it was loaded from.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let handle = create(|out, err| unsafe { sys::minim_model_checkpoint(self.0.handle, out, err) })?;
        Ok(Checkpoint::of_raw(handle, &self.0.runtime))
    }

    /// Computes this process's share of the model until the first process closes it: for processes whose number,
    /// [`ModelInfo::process`], is not 0.
    pub fn follow(&mut self) -> Result<()> {
        check(|err| unsafe { sys::minim_model_follow(self.0.handle, err) })
    }

    /// Returns the error that ended the work of the ranks, if one is lost.
    pub fn check(&self) -> Result<()> {
        check(|err| unsafe { sys::minim_model_check(self.0.handle, err) })
    }

    /// Returns the properties of the model.
    pub fn info(&self) -> Result<ModelInfo> {
        let mut info = sys::minim_model_info::default();
        check(|err| unsafe { sys::minim_model_get_info(self.0.handle, &mut info, err) })?;
        let text = |text| unsafe { text_of(text) };
        Ok(ModelInfo {
            name: text(info.name),
            backend: text(info.backend),
            placement: text(info.placement),
            process: info.process,
            n_processes: info.n_processes,
            n_ranks: info.n_ranks,
            n_layer: info.n_layer,
            hidden: info.hidden,
            n_expert: info.n_expert,
            n_expert_used: info.n_expert_used,
            n_vocab: info.n_vocab,
            n_context_train: info.n_context_train,
            n_parameters: info.n_parameters,
            weight_bytes: info.weight_bytes,
        })
    }

    /// Returns the token ids of a text.
    pub fn tokenize(&self, text: &str, specials: Specials) -> Result<Vec<i32>> {
        let tokens = create(|out, err| unsafe {
            sys::minim_tokenize(self.0.handle, text.as_ptr().cast(), text.len(), specials as i32, out, err)
        })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Returns the text of ids. Bytes that are not UTF-8 become U+FFFD.
    pub fn detokenize(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let text = create(|out, err| unsafe {
            sys::minim_detokenize(self.0.handle, ids.as_ptr(), ids.len(), i32::from(skip_special), out, err)
        })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Returns a token's bytes, which may be part of a UTF-8 sequence.
    pub fn token_text(&self, id: i32) -> Result<Vec<u8>> {
        let text = create(|out, err| unsafe { sys::minim_token_text(self.0.handle, id, out, err) })?;
        Ok(unsafe { take_text(text) })
    }

    /// Returns bits of `MINIM_TOKEN_*`, or `None` if the id is not a token.
    pub fn token_attributes(&self, id: i32) -> Option<i32> {
        let attributes = unsafe { sys::minim_token_attributes(self.0.handle, id) };
        (attributes >= 0).then_some(attributes)
    }

    /// Makes a decoder for the text of tokens that come one by one.
    pub fn decoder(&self, skip_special: bool) -> Result<Decoder> {
        let skip = i32::from(skip_special);
        let handle = create(|out, err| unsafe { sys::minim_decoder_create(self.0.handle, skip, out, err) })?;
        Ok(Decoder { handle, _model: Arc::clone(&self.0) })
    }

    /// Returns the prompt for a conversation as ids. `messages` and `tools` are JSON in the format of OpenAI's API; their text cannot
    /// forge control tokens.
    pub fn tokenize_chat(&self, messages: &str, tools: Option<&str>) -> Result<Vec<i32>> {
        let messages = c_text(messages, "messages")?;
        let tools = tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let tokens = create(|out, err| unsafe {
            let specials = sys::MINIM_SPECIALS_SAFE;
            sys::minim_chat_tokenize(self.0.handle, messages.as_ptr(), pointer_or_null(&tools), ptr::null(), specials, out, err)
        })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Returns the prompt for a conversation as text.
    pub fn render_chat(&self, messages: &str, tools: Option<&str>) -> Result<String> {
        let messages = c_text(messages, "messages")?;
        let tools = tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let text = create(|out, err| unsafe {
            sys::minim_chat_render(self.0.handle, messages.as_ptr(), pointer_or_null(&tools), ptr::null(), out, err)
        })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Returns the prompt for a conversation as ids, as [`tokenize_chat`](Self::tokenize_chat) does with the same `specials`.
    pub fn tokenize_chat_with(&self, messages: &str, specials: Specials, options: ChatOptions<'_>) -> Result<Vec<i32>> {
        let messages = c_text(messages, "messages")?;
        let tokens = options.with(|params| {
            create(|out, err| unsafe {
                sys::minim_chat_tokenize_with(self.0.handle, messages.as_ptr(), params, specials as i32, out, err)
            })
        })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Returns the prompt for a conversation as text, with more options.
    pub fn render_chat_with(&self, messages: &str, options: ChatOptions<'_>) -> Result<String> {
        let messages = c_text(messages, "messages")?;
        let text = options.with(|params| {
            create(|out, err| unsafe { sys::minim_chat_render_with(self.0.handle, messages.as_ptr(), params, out, err) })
        })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Returns whether a prompt ends in an open think block, so that the answer begins with reasoning: for
    /// [`OutputOptions::starts_in_reasoning`](crate::OutputOptions::starts_in_reasoning) and `starts_after` of a constraint.
    pub fn chat_opens_thinking(&self, prompt: &[i32]) -> Result<bool> {
        let mut opens = 0;
        check(|err| unsafe { sys::minim_chat_opens_thinking(self.0.handle, prompt.as_ptr(), prompt.len(), &mut opens, err) })?;
        Ok(opens != 0)
    }

    /// Returns whether a prompt leaves it to the model whether the answer begins with reasoning: for
    /// [`ConstraintOptions::may_reason`](crate::ConstraintOptions::may_reason).
    pub fn chat_may_reason(&self, prompt: &[i32]) -> Result<bool> {
        let mut may_reason = 0;
        check(|err| unsafe { sys::minim_chat_may_reason(self.0.handle, prompt.as_ptr(), prompt.len(), &mut may_reason, err) })?;
        Ok(may_reason != 0)
    }

    /// Returns the markup of the model's chat format.
    pub fn chat_markup(&self) -> Result<ChatMarkup> {
        let mut markup = sys::minim_chat_markup::default();
        check(|err| unsafe { sys::minim_chat_get_markup(self.0.handle, &mut markup, err) })?;
        // The texts are constants of the library.
        let text = |text| unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap_or_default();
        let format = if markup.format == sys::MINIM_CHAT_FORMAT_M3 { ChatFormat::M3 } else { ChatFormat::M2 };
        Ok(ChatMarkup {
            format,
            think_begin: text(markup.think_begin),
            think_end: text(markup.think_end),
            call_begin: text(markup.call_begin),
        })
    }

    /// Makes a constraint on answers. `starts_after`: anything is allowed up to this token ("</think>").
    pub fn constraint(&self, form: ConstraintForm<'_>, starts_after: Option<&str>) -> Result<Constraint> {
        self.constraint_with(form, ConstraintOptions { starts_after, ..Default::default() })
    }

    /// Makes a constraint on answers, with more options.
    pub fn constraint_with(&self, form: ConstraintForm<'_>, options: ConstraintOptions<'_>) -> Result<Constraint> {
        Constraint::new(&self.0, form, options)
    }

    /// Makes an empty session. Errors: `OutOfMemory`, naming the largest context that fits.
    pub fn session(&self, options: SessionOptions) -> Result<Session> {
        let handle = create(|out, err| unsafe { sys::minim_session_create(self.0.handle, &options.0, out, err) })?;
        Ok(Session::of_raw(handle, &self.0))
    }

    /// Restores a session from a file of [`Session::save`], also of another process.
    pub fn restore(&self, path: impl AsRef<Path>, options: SessionOptions, cancel: Option<&Cancel>) -> Result<Session> {
        let path = c_path(path.as_ref())?;
        let cancel = Cancel::raw(cancel);
        let handle =
            create(|out, err| unsafe { sys::minim_session_restore(self.0.handle, path.as_ptr(), &options.0, cancel, out, err) })?;
        Ok(Session::of_raw(handle, &self.0))
    }

    /// Restores a session from the bytes of [`Session::save_bytes`].
    pub fn restore_bytes(&self, bytes: &[u8], options: SessionOptions, cancel: Option<&Cancel>) -> Result<Session> {
        let cancel = Cancel::raw(cancel);
        let handle = create(|out, err| unsafe {
            let (data, size) = (bytes.as_ptr().cast(), bytes.len());
            sys::minim_session_restore_memory(self.0.handle, data, size, &options.0, cancel, out, err)
        })?;
        Ok(Session::of_raw(handle, &self.0))
    }

    /// Restores a session from the position of an open file on, and moves the position behind it. Not for a pipe or socket.
    pub fn restore_fd(&self, file: impl AsFd, options: SessionOptions, cancel: Option<&Cancel>) -> Result<Session> {
        let (file, cancel) = (file.as_fd().as_raw_fd(), Cancel::raw(cancel));
        let handle =
            create(|out, err| unsafe { sys::minim_session_restore_fd(self.0.handle, file, &options.0, cancel, out, err) })?;
        Ok(Session::of_raw(handle, &self.0))
    }

    /// Makes an engine, which serves many prompts at once.
    pub fn engine(&self, options: EngineOptions) -> Result<Engine> {
        let handle = create(|out, err| unsafe { sys::minim_engine_create(self.0.handle, &options.0, out, err) })?;
        Ok(Engine::of_raw(handle, &self.0))
    }
}
