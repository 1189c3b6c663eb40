// SPDX-License-Identifier: Apache-2.0
//! Models, tokens and chat prompts.

use std::path::Path;
use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::constraint::{Constraint, ConstraintForm};
use crate::engine::{Engine, EngineOptions};
use crate::error::{check, Result};
use crate::options::{ModelOptions, SessionOptions, Specials};
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
    pub n_layer: i32,
    pub hidden: i64,
    pub n_expert: i32,
    pub n_expert_used: i32,
    pub n_vocab: i64,
    pub n_context_train: i64,
    pub n_parameters: i64,
    pub weight_bytes: u64,
}

/// A loaded model. Any thread may use it.
pub struct Model {
    handle: *mut sys::minim_model,
    runtime: Arc<Shared>,
}

// "immutable, any thread"
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sys::minim_model_close(self.handle) }
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
            Ok(Model { handle, runtime: Arc::clone(&runtime.0) })
        })
    }

    /// Returns the properties of the model.
    pub fn info(&self) -> Result<ModelInfo> {
        let mut info = sys::minim_model_info::default();
        check(|err| unsafe { sys::minim_model_get_info(self.handle, &mut info, err) })?;
        let text = |text| unsafe { text_of(text) };
        Ok(ModelInfo {
            name: text(info.name),
            backend: text(info.backend),
            placement: text(info.placement),
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
            sys::minim_tokenize(self.handle, text.as_ptr().cast(), text.len(), specials as i32, out, err)
        })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Returns the text of ids. Bytes that are not UTF-8 become U+FFFD.
    pub fn detokenize(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let text = create(|out, err| unsafe {
            sys::minim_detokenize(self.handle, ids.as_ptr(), ids.len(), i32::from(skip_special), out, err)
        })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Returns the prompt for a conversation as ids. `messages` and `tools` are JSON in the format of OpenAI's API; their text cannot
    /// forge control tokens.
    pub fn tokenize_chat(&self, messages: &str, tools: Option<&str>) -> Result<Vec<i32>> {
        let messages = c_text(messages, "messages")?;
        let tools = tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let tokens = create(|out, err| unsafe {
            let specials = sys::MINIM_SPECIALS_SAFE;
            sys::minim_chat_tokenize(self.handle, messages.as_ptr(), pointer_or_null(&tools), ptr::null(), specials, out, err)
        })?;
        Ok(unsafe { take_tokens(tokens) })
    }

    /// Returns the prompt for a conversation as text.
    pub fn render_chat(&self, messages: &str, tools: Option<&str>) -> Result<String> {
        let messages = c_text(messages, "messages")?;
        let tools = tools.map(|tools| c_text(tools, "tools")).transpose()?;
        let text = create(|out, err| unsafe {
            sys::minim_chat_render(self.handle, messages.as_ptr(), pointer_or_null(&tools), ptr::null(), out, err)
        })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Makes a constraint on answers. `starts_after`: anything is allowed up to this token ("</think>").
    pub fn constraint(&self, form: ConstraintForm<'_>, starts_after: Option<&str>) -> Result<Constraint> {
        Constraint::new(self.handle, &self.runtime, form, starts_after)
    }

    /// Makes an empty session. Errors: `OutOfMemory`, naming the largest context that fits.
    pub fn session(&self, options: SessionOptions) -> Result<Session> {
        let handle = create(|out, err| unsafe { sys::minim_session_create(self.handle, &options.0, out, err) })?;
        Ok(Session::of_raw(handle, &self.runtime))
    }

    /// Restores a session from a file of [`Session::save`], also of another process.
    pub fn restore(&self, path: impl AsRef<Path>, options: SessionOptions, cancel: Option<&Cancel>) -> Result<Session> {
        let path = c_path(path.as_ref())?;
        let cancel = Cancel::raw(cancel);
        let handle =
            create(|out, err| unsafe { sys::minim_session_restore(self.handle, path.as_ptr(), &options.0, cancel, out, err) })?;
        Ok(Session::of_raw(handle, &self.runtime))
    }

    /// Makes an engine, which serves many prompts at once.
    pub fn engine(&self, options: EngineOptions) -> Result<Engine> {
        let handle = create(|out, err| unsafe { sys::minim_engine_create(self.handle, &options.0, out, err) })?;
        Ok(Engine::of_raw(handle, &self.runtime))
    }
}
