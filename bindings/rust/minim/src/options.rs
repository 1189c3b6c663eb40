// SPDX-License-Identifier: Apache-2.0
//! Options of models and sessions.

use std::any::Any;
use std::ffi::CString;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::error::Result;
use crate::raw::{c_path, c_text, pointer_or_null};

/// The format of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
#[allow(missing_docs)]
pub enum KvFormat {
    Auto = sys::MINIM_KV_AUTO,
    F16 = sys::MINIM_KV_F16,
    F32 = sys::MINIM_KV_F32,
    Bf16 = sys::MINIM_KV_BF16,
    Q8_0 = sys::MINIM_KV_Q8_0,
    Q4_0 = sys::MINIM_KV_Q4_0,
}

/// The storage of weights in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Residence {
    /// Read into memory if it fits, else mapped.
    Auto = sys::MINIM_RESIDENCE_AUTO,
    /// Mapped from the file.
    Mapped = sys::MINIM_RESIDENCE_MAPPED,
    /// Read into memory.
    Owned = sys::MINIM_RESIDENCE_OWNED,
}

/// The rule by which the codebooks of IQ1, IQ2 and IQ3 weights are unpacked when they are read into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Expand {
    /// Unpacks them if a measurement shows that products are faster, and there is memory.
    Auto = sys::MINIM_EXPAND_AUTO,
    /// Never.
    Off = sys::MINIM_EXPAND_OFF,
    /// Always.
    On = sys::MINIM_EXPAND_ON,
}

/// The time at which experts of a device's cache change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum ExpertMoves {
    /// `Reproducible`; `Fixed` for deterministic models.
    Auto = sys::MINIM_EXPERT_MOVES_AUTO,
    /// Never.
    Fixed = sys::MINIM_EXPERT_MOVES_FIXED,
    /// A fixed number of steps after an expert was chosen.
    Reproducible = sys::MINIM_EXPERT_MOVES_REPRODUCIBLE,
    /// As soon as the expert was copied.
    Eager = sys::MINIM_EXPERT_MOVES_EAGER,
}

/// The control tokens that are recognised in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Specials {
    /// All: for text of the program itself.
    Exact = sys::MINIM_SPECIALS_EXACT,
    /// None that ends or begins a turn: for text of users.
    Safe = sys::MINIM_SPECIALS_SAFE,
    /// None.
    None = sys::MINIM_SPECIALS_NONE,
    /// Only for chat prompts: all in the template's own text, none in messages.
    Template = sys::MINIM_SPECIALS_TEMPLATE,
}

type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + Send + 'a;

/// The options of a [`Model`](crate::Model).
#[derive(Default)]
pub struct ModelOptions<'a> {
    params: sys::minim_model_params,
    backend: Option<String>,
    devices: Option<String>,
    overrides: Option<String>,
    packed_file: Option<PathBuf>,
    expert_profile: Option<PathBuf>,
    chat_template: Option<String>,
    split: Vec<f64>,
    budgets: Vec<u64>,
    progress: Option<Box<Progress<'a>>>,
    cancel: Option<Cancel>,
}

struct Reports<'a, 'b> {
    progress: &'b mut Progress<'a>,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn report(user_data: *mut c_void, done: u64, total: u64) -> i32 {
    let reports = &mut *user_data.cast::<Reports<'_, '_>>();
    match catch_unwind(AssertUnwindSafe(|| (reports.progress)(done, total))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(panic) => {
            reports.panic = Some(panic);
            1
        }
    }
}

impl<'a> ModelOptions<'a> {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// "cpu", or "reference": plain float arithmetic, slow and exact.
    pub fn backend(mut self, name: &str) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// Sets the devices for the layers: "cuda:0", "cuda:0,cuda:1".
    pub fn devices(mut self, names: &str) -> Self {
        self.devices = Some(names.into());
        self
    }

    /// Sets the devices' shares of the layers. Default: in proportion to the memory that may be used.
    pub fn split(mut self, shares: &[f64]) -> Self {
        self.split = shares.to_vec();
        self
    }

    /// Sets the maximum number of bytes to use of each device; 0: no limit.
    pub fn budgets(mut self, bytes: &[u64]) -> Self {
        self.budgets = bytes.to_vec();
        self
    }

    /// Sets the number of layers on the devices, the last ones of the model. Default: all.
    pub fn device_layers(mut self, count: i32) -> Self {
        self.params.n_device_layers = count;
        self
    }

    /// Leaves out devices that cannot be opened, with a warning.
    pub fn allow_cpu(mut self, on: bool) -> Self {
        self.params.allow_cpu = i32::from(on);
        self
    }

    /// Sets the bytes for a cache of experts on the devices; `u64::MAX`: what is left beside the context.
    pub fn expert_cache(mut self, bytes: u64) -> Self {
        self.params.expert_cache_bytes = bytes;
        self
    }

    /// Sets when experts of the cache change.
    pub fn expert_moves(mut self, moves: ExpertMoves) -> Self {
        self.params.expert_moves = moves as i32;
        self
    }

    /// Sets a file that says which experts to cache first: one of
    /// [`save_expert_profile`](crate::Model::save_expert_profile).
    pub fn expert_profile(mut self, path: impl AsRef<Path>) -> Self {
        self.expert_profile = Some(path.as_ref().into());
        self
    }

    /// Sets a chat template, the text of a Jinja template, in place of the checkpoint's templates.
    pub fn chat_template(mut self, text: &str) -> Self {
        self.chat_template = Some(text.into());
        self
    }

    /// Sets the number of ranks that share the layers, one for each device of each process; -1: all. Processes other than the
    /// first one call [`Model::follow`](crate::Model::follow).
    pub fn tensor_parallel(mut self, ranks: i32) -> Self {
        self.params.tensor_parallel = ranks;
        self
    }

    /// Sets the number of groups of ranks that have whole experts; without tensor_parallel, of ranks that share experts alone.
    pub fn expert_parallel(mut self, groups: i32) -> Self {
        self.params.expert_parallel = groups;
        self
    }

    /// Sets the number of processes that have layers each.
    pub fn pipeline_parallel(mut self, processes: i32) -> Self {
        self.params.pipeline_parallel = processes;
        self
    }

    /// Sets how long a rank may not answer within a step, in milliseconds; 0: 30 seconds.
    pub fn rank_timeout_ms(mut self, milliseconds: i32) -> Self {
        self.params.rank_timeout_ms = milliseconds;
        self
    }

    /// Sets the format of the context that room is left for.
    pub fn fit_kv(mut self, format: KvFormat) -> Self {
        self.params.fit_k_format = format as i32;
        self.params.fit_v_format = format as i32;
        self
    }

    /// Sets whether codebooks are unpacked.
    pub fn expand(mut self, expand: Expand) -> Self {
        self.params.expand = expand as i32;
        self
    }

    /// Locks weights and KV cache in host memory.
    pub fn lock(mut self, on: bool) -> Self {
        self.params.lock = i32::from(on);
        self
    }

    /// Prefaults mapped weights before the model is ready.
    pub fn prefault(mut self, on: bool) -> Self {
        self.params.prefault = i32::from(on);
        self
    }

    /// Splits text as llama.cpp does, for token-exact comparison with it.
    pub fn engine_tokenizer(mut self, on: bool) -> Self {
        self.params.engine_tokenizer = i32::from(on);
        self
    }

    /// Puts experts on another device than their layer: "PATTERN=DEVICE,...".
    pub fn overrides(mut self, rules: &str) -> Self {
        self.overrides = Some(rules.into());
        self
    }

    /// Keeps the experts of the first n layers on the host; below 0: of the last n.
    pub fn host_experts(mut self, count: i64) -> Self {
        self.params.n_host_experts = count;
        self
    }

    /// Keeps experts on the host as needed to leave room for a context of so many tokens.
    pub fn fit_context(mut self, tokens: i64) -> Self {
        self.params.fit_context = tokens;
        self
    }

    /// Sets the rows of a prompt step that room is left for. 0: what a plan finds best.
    pub fn fit_ubatch(mut self, rows: i32) -> Self {
        self.params.fit_n_ubatch = rows;
        self
    }

    /// Sets the storage of weights in host memory.
    pub fn residence(mut self, residence: Residence) -> Self {
        self.params.residence = residence as i32;
        self
    }

    /// Maps packed weights from this file, which is created if needed.
    pub fn packed_file(mut self, path: impl AsRef<Path>) -> Self {
        self.packed_file = Some(path.as_ref().into());
        self
    }

    /// Makes logits of devices independent of batch composition and prompt chunking; slower.
    pub fn deterministic(mut self, on: bool) -> Self {
        self.params.deterministic = i32::from(on);
        self
    }

    /// Sets a callback, called from another thread with the bytes done and the total; `Break` ends the call with `Cancelled`. A panic
    /// in it continues in the call.
    pub fn progress(mut self, report: impl FnMut(u64, u64) -> ControlFlow<()> + Send + 'a) -> Self {
        self.progress = Some(Box::new(report));
        self
    }

    /// Sets a [`Cancel`](crate::Cancel) for opening the model.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Makes a call with these options.
    pub(crate) fn with<T>(
        self,
        call: impl FnOnce(*const sys::minim_model_params, *mut sys::minim_cancel) -> Result<T>,
    ) -> Result<T> {
        let text = |value: &Option<String>, what| value.as_deref().map(|value| c_text(value, what)).transpose();
        let (backend, devices) = (text(&self.backend, "the backend")?, text(&self.devices, "the devices")?);
        let overrides = text(&self.overrides, "the overrides")?;
        let chat_template = text(&self.chat_template, "the chat template")?;
        let packed_file: Option<CString> = self.packed_file.as_deref().map(c_path).transpose()?;
        let expert_profile: Option<CString> = self.expert_profile.as_deref().map(c_path).transpose()?;
        let mut params = self.params;
        params.backend = pointer_or_null(&backend);
        params.devices = pointer_or_null(&devices);
        params.overrides = pointer_or_null(&overrides);
        params.packed_file = pointer_or_null(&packed_file);
        params.expert_profile = pointer_or_null(&expert_profile);
        params.chat_template = pointer_or_null(&chat_template);
        if !self.split.is_empty() {
            params.split = self.split.as_ptr();
            params.n_split = self.split.len();
        }
        if !self.budgets.is_empty() {
            params.budgets = self.budgets.as_ptr();
            params.n_budgets = self.budgets.len();
        }
        let cancel = Cancel::raw(self.cancel.as_ref());
        let mut progress = match self.progress {
            Some(progress) => progress,
            None => return call(&params, cancel),
        };
        let mut reports = Reports { progress: &mut *progress, panic: None };
        params.progress = Some(report);
        params.progress_user_data = (&mut reports as *mut Reports<'_, '_>).cast();
        let result = call(&params, cancel);
        if let Some(panic) = reports.panic {
            drop(result);
            std::panic::resume_unwind(panic);
        }
        result
    }
}

/// The options of a [`Session`](crate::Session).
#[derive(Clone, Copy, Default)]
pub struct SessionOptions(pub(crate) sys::minim_session_params);

impl SessionOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of tokens. Default: the context that the model was trained for, or what fits in memory.
    pub fn context(mut self, tokens: u64) -> Self {
        self.0.max_context = tokens;
        self
    }

    /// Sets the format of the KV cache.
    pub fn kv(mut self, format: KvFormat) -> Self {
        self.0.k_format = format as i32;
        self.0.v_format = format as i32;
        self
    }

    /// Sets the rows of a step of a prompt.
    pub fn ubatch(mut self, rows: i32) -> Self {
        self.0.n_ubatch = rows;
        self
    }
}
