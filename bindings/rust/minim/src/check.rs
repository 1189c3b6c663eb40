// SPDX-License-Identifier: Apache-2.0
//! Checks of checkpoints.

use std::path::{Path, PathBuf};

use minim_sys as sys;

use crate::cancel::Cancel;
use crate::error::Result;
use crate::raw::{c_path, c_text, create, pointer_or_null, take_text};
use crate::runtime::Runtime;

/// The options of [`check`].
#[derive(Clone, Default)]
pub struct CheckOptions {
    quick: bool,
    wants_sums: bool,
    wants_answers: bool,
    machine: bool,
    sums: Option<String>,
    answers: Option<String>,
    reference: Option<PathBuf>,
}

impl CheckOptions {
    /// Returns the options of a check of all stages that need nothing beside the checkpoint.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out what reads all weights or computes.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// Checks also this machine: its kernels, devices and storage.
    pub fn machine(mut self) -> Self {
        self.machine = true;
        self
    }

    /// Compares files with sums, a text as sha256sum writes it.
    pub fn sums(mut self, text: &str) -> Self {
        self.sums = Some(text.into());
        self
    }

    /// Compares what the model computes with the answers of another report.
    pub fn answers(mut self, text: &str) -> Self {
        self.answers = Some(text.into());
        self
    }

    /// Compares all matrices with those of another checkpoint of the same model.
    pub fn reference(mut self, path: impl AsRef<Path>) -> Self {
        self.reference = Some(path.as_ref().into());
        self
    }

    /// Adds the sums of the files to the report.
    pub fn want_sums(mut self) -> Self {
        self.wants_sums = true;
        self
    }

    /// Adds what the model computes to the report, for other machines or files to be compared with.
    pub fn want_answers(mut self) -> Self {
        self.wants_answers = true;
        self
    }
}

/// Checks whether a checkpoint is whole, is a model of the family, and is computed right on this machine. Returns the JSON object that
/// minim.h (`minim_check`) describes. Faults are no error.
pub fn check(runtime: &Runtime, path: impl AsRef<Path>, options: &CheckOptions, cancel: Option<&Cancel>) -> Result<String> {
    let path = c_path(path.as_ref())?;
    let sums = options.sums.as_deref().map(|text| c_text(text, "the sums")).transpose()?;
    let answers = options.answers.as_deref().map(|text| c_text(text, "the answers")).transpose()?;
    let reference = options.reference.as_deref().map(c_path).transpose()?;
    let params = sys::minim_check_params {
        quick: i32::from(options.quick),
        wants_sums: i32::from(options.wants_sums),
        wants_answers: i32::from(options.wants_answers),
        machine: i32::from(options.machine),
        sums: pointer_or_null(&sums),
        answers: pointer_or_null(&answers),
        reference: pointer_or_null(&reference),
        ..Default::default()
    };
    let text =
        create(|out, err| unsafe { sys::minim_check(runtime.0.handle, path.as_ptr(), &params, Cancel::raw(cancel), out, err) })?;
    Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
}
