// SPDX-License-Identifier: Apache-2.0
//! Conversions of checkpoints to GGUF files and safetensors folders.

use std::any::Any;
use std::ffi::CString;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::error::Result;
use crate::raw::{c_path, c_text, create, pointer_or_null, take_text, text_of};
use crate::runtime::Runtime;

/// How far [`convert`] is.
#[non_exhaustive]
pub struct ConvertProgress {
    /// Bytes of the source that are done.
    pub done_bytes: u64,
    /// Bytes of the source in all.
    pub total_bytes: u64,
    /// Tensors that are finished.
    pub n_done: i64,
    /// Tensors in all.
    pub n_tensors: i64,
    /// The tensor that is worked on, or was just finished.
    pub tensor: String,
    /// A tensor that was just finished: its JSON object in the report.
    pub result: Option<String>,
}

type Progress<'a> = dyn FnMut(&ConvertProgress) -> ControlFlow<()> + Send + 'a;

/// The options of [`convert`].
#[derive(Default)]
pub struct ConvertOptions<'a> {
    params: sys::minim_convert_params,
    recipe: Option<String>,
    kind: Option<String>,
    rules: Vec<String>,
    output_type: Option<String>,
    embedding_type: Option<String>,
    imatrix: Option<PathBuf>,
    layout: Option<String>,
    keep_experts: Option<PathBuf>,
    reuse: Option<PathBuf>,
    container: Option<String>,
    include_weights: Vec<String>,
    exclude_weights: Vec<String>,
    name: Option<String>,
    unset: Vec<String>,
    set: Vec<String>,
    set_text: Vec<String>,
    progress: Option<Box<Progress<'a>>>,
    cancel: Option<Cancel>,
}

impl<'a> ConvertOptions<'a> {
    /// Returns the options of a conversion in which all numbers stay, if GGUF has a type that holds them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quantises by a recipe, such as "Q4_K_M", or to a type.
    pub fn recipe(mut self, name: &str) -> Self {
        self.recipe = Some(name.into());
        self
    }

    /// Sets the type of all matrices, without a recipe: "keep", "auto", "f32", "f16", "bf16" or "q8_0".
    pub fn kind(mut self, name: &str) -> Self {
        self.kind = Some(name.into());
        self
    }

    /// Adds a rule: the type of tensors whose GGUF names have a match of a regular expression. The first match decides, before the recipe.
    pub fn rule(mut self, pattern: &str, kind: &str) -> Self {
        self.rules.push(format!("{pattern}={kind}"));
        self
    }

    /// Sets the type of output.weight, before the rules.
    pub fn output_type(mut self, kind: &str) -> Self {
        self.output_type = Some(kind.into());
        self
    }

    /// Sets the type of token_embd.weight, before the rules.
    pub fn embedding_type(mut self, kind: &str) -> Self {
        self.embedding_type = Some(kind.into());
        self
    }

    /// Leaves output.weight in the source's type.
    pub fn keep_output(mut self) -> Self {
        self.params.keep_output = 1;
        self
    }

    /// Leaves out the exceptions of the recipe.
    pub fn pure(mut self) -> Self {
        self.params.pure = 1;
        self
    }

    /// Encodes also matrices below 8 bits.
    pub fn allow_requantize(mut self) -> Self {
        self.params.allow_requantize = 1;
        self
    }

    /// Sets the file of importance data.
    pub fn imatrix(mut self, file: impl Into<PathBuf>) -> Self {
        self.imatrix = Some(file.into());
        self
    }

    /// Sets the layout of an output that is a folder: "bf16", "fp8", "nvfp4", ...
    pub fn layout(mut self, name: &str) -> Self {
        self.layout = Some(name.into());
        self
    }

    /// Keeps some experts of each layer: a number, by the importance data, or a file that lists them.
    pub fn keep_experts(mut self, number_or_file: impl Into<PathBuf>) -> Self {
        self.keep_experts = Some(number_or_file.into());
        self
    }

    /// Sets an earlier output, from which tensors that would be the same are copied.
    pub fn reuse(mut self, file: impl Into<PathBuf>) -> Self {
        self.reuse = Some(file.into());
        self
    }

    /// Sets what is written, "gguf" or "safetensors", whatever the name of the output.
    pub fn container(mut self, name: &str) -> Self {
        self.container = Some(name.into());
        self
    }

    /// Uses importance data for tensors whose names have one of `include` (none: all), and none of `exclude`.
    pub fn weights(mut self, include: &[&str], exclude: &[&str]) -> Self {
        self.include_weights = include.iter().map(|&text| text.into()).collect();
        self.exclude_weights = exclude.iter().map(|&text| text.into()).collect();
        self
    }

    /// Encodes types that need importance data without.
    pub fn without_importance(mut self) -> Self {
        self.params.without_importance = 1;
        self
    }

    /// Tries fewer scales: several times faster, with slightly larger errors.
    pub fn fast(mut self) -> Self {
        self.params.effort = sys::MINIM_CONVERT_EFFORT_FAST;
        self
    }

    /// Writes no hashes into the metadata.
    pub fn without_hashes(mut self) -> Self {
        self.params.no_hashes = 1;
        self
    }

    /// Sets general.name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets a metadata key: "5", "u32:5", "true", "0.5" or a text. A key that is there keeps its type.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.set.push(format!("{key}={value}"));
        self
    }

    /// Sets a metadata key to a text, whatever it looks like.
    pub fn set_text(mut self, key: &str, text: &str) -> Self {
        self.set_text.push(format!("{key}={text}"));
        self
    }

    /// Removes a metadata key.
    pub fn unset(mut self, key: &str) -> Self {
        self.unset.push(key.into());
        self
    }

    /// Limits the bytes of tensors and the tensors in a part; 0: no limit.
    pub fn parts(mut self, bytes: u64, tensors: i64) -> Self {
        self.params.part_bytes = bytes;
        self.params.part_tensors = tensors;
        self
    }

    /// Writes a first part with the metadata alone.
    pub fn first_part_empty(mut self) -> Self {
        self.params.first_part_empty = 1;
        self
    }

    /// Divides the tensors as in the parts of the source.
    pub fn keep_parts(mut self) -> Self {
        self.params.keep_parts = 1;
        self
    }

    /// Plans only, and writes nothing.
    pub fn dry_run(mut self) -> Self {
        self.params.dry_run = 1;
        self
    }

    /// Replaces files of the output that exist.
    pub fn overwrite(mut self) -> Self {
        self.params.overwrite = 1;
        self
    }

    /// Throws an unfinished output away.
    pub fn restart(mut self) -> Self {
        self.params.restart = 1;
        self
    }

    /// Does not read the output again at the end.
    pub fn without_verification(mut self) -> Self {
        self.params.no_verify = 1;
        self
    }

    /// Sets the most memory of all buffers, in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.params.memory_bytes = bytes;
        self
    }

    /// Reports progress, on the calling thread; `Break` cancels.
    pub fn progress(mut self, report: impl FnMut(&ConvertProgress) -> ControlFlow<()> + Send + 'a) -> Self {
        self.progress = Some(Box::new(report));
        self
    }

    /// Sets what cancels the conversion.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }
}

struct Reports<'a, 'b> {
    progress: &'b mut Progress<'a>,
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn report(user_data: *mut c_void, now: *const sys::minim_convert_progress) -> i32 {
    let reports = &mut *user_data.cast::<Reports<'_, '_>>();
    let now = &*now;
    let progress = ConvertProgress {
        done_bytes: now.done_bytes,
        total_bytes: now.total_bytes,
        n_done: now.n_done,
        n_tensors: now.n_tensors,
        tensor: text_of(now.tensor),
        result: if now.result.is_null() { None } else { Some(text_of(now.result)) },
    };
    match catch_unwind(AssertUnwindSafe(|| (reports.progress)(&progress))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(panic) => {
            reports.panic = Some(panic);
            1
        }
    }
}

/// Texts and the pointers to them, for a call.
struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

fn c_texts(texts: &[String], what: &str) -> Result<Texts> {
    let texts = texts.iter().map(|text| c_text(text, what)).collect::<Result<Vec<CString>>>()?;
    let pointers = texts.iter().map(|text| text.as_ptr()).collect();
    Ok(Texts { _texts: texts, pointers })
}

fn c_option(text: &Option<String>, what: &str) -> Result<Option<CString>> {
    text.as_deref().map(|text| c_text(text, what)).transpose()
}

/// Converts a checkpoint of any layout to a GGUF file or a folder, or quantises it. Returns the report, the JSON object that minim.h (`minim_convert`)
/// describes. Work that was interrupted goes on with the same call.
pub fn convert(
    runtime: &Runtime,
    source: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: ConvertOptions<'_>,
) -> Result<String> {
    let source = c_path(source.as_ref())?;
    let output = c_path(output.as_ref())?;
    let recipe = c_option(&options.recipe, "the recipe")?;
    let kind = c_option(&options.kind, "the type")?;
    let output_type = c_option(&options.output_type, "the output's type")?;
    let embedding_type = c_option(&options.embedding_type, "the embedding's type")?;
    let name = c_option(&options.name, "the name")?;
    let imatrix = options.imatrix.as_deref().map(c_path).transpose()?;
    let layout = c_option(&options.layout, "the layout")?;
    let container = c_option(&options.container, "the container")?;
    let keep_experts = options.keep_experts.as_deref().map(c_path).transpose()?;
    let reuse = options.reuse.as_deref().map(c_path).transpose()?;
    let rules = c_texts(&options.rules, "a rule")?;
    let include_weights = c_texts(&options.include_weights, "a part of a name")?;
    let exclude_weights = c_texts(&options.exclude_weights, "a part of a name")?;
    let unset = c_texts(&options.unset, "a metadata key")?;
    let set = c_texts(&options.set, "metadata")?;
    let set_text = c_texts(&options.set_text, "metadata")?;
    let mut params = options.params;
    params.recipe = pointer_or_null(&recipe);
    params.matrix_type = pointer_or_null(&kind);
    params.output_type = pointer_or_null(&output_type);
    params.embedding_type = pointer_or_null(&embedding_type);
    params.name = pointer_or_null(&name);
    params.imatrix = pointer_or_null(&imatrix);
    params.layout = pointer_or_null(&layout);
    params.keep_experts = pointer_or_null(&keep_experts);
    params.reuse = pointer_or_null(&reuse);
    params.container = pointer_or_null(&container);
    params.rules = rules.pointers.as_ptr();
    params.n_rules = rules.pointers.len();
    params.include_weights = include_weights.pointers.as_ptr();
    params.n_include_weights = include_weights.pointers.len();
    params.exclude_weights = exclude_weights.pointers.as_ptr();
    params.n_exclude_weights = exclude_weights.pointers.len();
    params.unset = unset.pointers.as_ptr();
    params.n_unset = unset.pointers.len();
    params.set = set.pointers.as_ptr();
    params.n_set = set.pointers.len();
    params.set_text = set_text.pointers.as_ptr();
    params.n_set_text = set_text.pointers.len();
    let cancel = Cancel::raw(options.cancel.as_ref());
    let call = |params: &sys::minim_convert_params| {
        create(|out, err| unsafe {
            sys::minim_convert(runtime.0.handle, source.as_ptr(), output.as_ptr(), params, cancel, out, err)
        })
    };
    let text = match options.progress {
        None => call(&params)?,
        Some(mut progress) => {
            let mut reports = Reports { progress: &mut *progress, panic: None };
            params.progress = Some(report);
            params.progress_user_data = (&mut reports as *mut Reports<'_, '_>).cast();
            let result = call(&params);
            if let Some(panic) = reports.panic {
                drop(result.map(|text| unsafe { take_text(text) }));
                std::panic::resume_unwind(panic);
            }
            result?
        }
    };
    Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
}
