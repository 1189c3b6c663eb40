// SPDX-License-Identifier: Apache-2.0
//! Importance data: sums of squares of the inputs of each weight, with which quantisers weigh errors.

use std::path::Path;
use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::error::{check, Result};
use crate::model::{Model, ModelHandle};
use crate::raw::{c_path, c_text, create, take_text};
use crate::session::Session;

/// The form of a file of importance data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImportanceFormat {
    /// By the name: `Dat` if it ends in `.dat`.
    #[default]
    Auto,
    /// Sums and counts, as llama.cpp writes them today.
    Gguf,
    /// The older form: mean squares alone.
    Dat,
}

/// Options of [`Importance::new`].
#[derive(Clone, Debug, Default)]
pub struct ImportanceOptions {
    dataset: String,
    chunk_size: i32,
    process_output: bool,
    text_hash: u64,
}

impl ImportanceOptions {
    /// Returns the defaults: chunks of 512 tokens, no output head.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the text, which files keep.
    pub fn dataset(mut self, name: impl Into<String>) -> Self {
        self.dataset = name.into();
        self
    }

    /// The tokens of a chunk, in which files count the text.
    pub fn chunk_size(mut self, tokens: i32) -> Self {
        self.chunk_size = tokens;
        self
    }

    /// Also collect for the output head.
    pub fn process_output(mut self, yes: bool) -> Self {
        self.process_output = yes;
        self
    }

    /// A number that stands for the text; GGUF files keep it.
    pub fn text_hash(mut self, hash: u64) -> Self {
        self.text_hash = hash;
        self
    }
}

/// Importance data: collected from what attached sessions evaluate, read from files, or both. Any thread may use it.
pub struct Importance {
    handle: *mut sys::minim_importance,
    _model: Option<Arc<ModelHandle>>,
}

// "any thread"
unsafe impl Send for Importance {}
unsafe impl Sync for Importance {}

impl Drop for Importance {
    fn drop(&mut self) {
        unsafe { sys::minim_importance_free(self.handle) }
    }
}

impl Importance {
    /// Makes a handle that collects for a model. Errors: `Unsupported`, naming a device that cannot show its inputs; `OutOfMemory`.
    pub fn new(model: &Model, options: ImportanceOptions) -> Result<Self> {
        let dataset = c_text(&options.dataset, "the dataset")?;
        let params = sys::minim_importance_params {
            dataset: dataset.as_ptr(),
            chunk_size: options.chunk_size,
            process_output: i32::from(options.process_output),
            text_hash: options.text_hash,
            ..Default::default()
        };
        let handle = create(|out, err| unsafe { sys::minim_importance_create(model.0.handle, &params, out, err) })?;
        Ok(Importance { handle, _model: Some(Arc::clone(&model.0)) })
    }

    /// Reads a file of either form. `chunk_size`: of an older file, which has no counts; 0: not known. Errors: `NotFound`, `Io`, `Format`.
    pub fn load(path: impl AsRef<Path>, chunk_size: i32) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        let handle = create(|out, err| unsafe { sys::minim_importance_load(path.as_ptr(), chunk_size, out, err) })?;
        Ok(Importance { handle, _model: None })
    }

    /// Collects from all that the session evaluates from now on.
    pub fn attach(&self, session: &mut Session) -> Result<()> {
        check(|err| unsafe { sys::minim_importance_attach(self.handle, session.raw(), err) })
    }

    /// Collects no more from the session.
    pub fn detach(session: &mut Session) -> Result<()> {
        check(|err| unsafe { sys::minim_importance_attach(ptr::null(), session.raw(), err) })
    }

    /// Adds the sums and counts of another one.
    pub fn merge(&self, other: &Importance) -> Result<()> {
        check(|err| unsafe { sys::minim_importance_merge(self.handle, other.handle, err) })
    }

    /// Writes a file. An older one of that name is replaced once the new one is whole.
    pub fn save(&self, path: impl AsRef<Path>, format: ImportanceFormat) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let format = match format {
            ImportanceFormat::Auto => sys::MINIM_IMPORTANCE_AUTO,
            ImportanceFormat::Gguf => sys::MINIM_IMPORTANCE_GGUF,
            ImportanceFormat::Dat => sys::MINIM_IMPORTANCE_DAT,
        };
        check(|err| unsafe { sys::minim_importance_save(self.handle, path.as_ptr(), format, err) })
    }

    /// Returns the data in short, as a JSON object.
    pub fn describe(&self) -> Result<String> {
        let text = create(|out, err| unsafe { sys::minim_importance_describe(self.handle, out, err) })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }
}
