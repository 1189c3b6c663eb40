// SPDX-License-Identifier: Apache-2.0
//! The headers of a checkpoint: metadata, tensors, recommended sampling.

use std::os::unix::io::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;

use minim_sys as sys;

use crate::error::{check, Result};
use crate::raw::{c_path, c_text, create, take_text, text_of};
use crate::runtime::{Runtime, Shared};

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name in the file.
    pub name: String,
    /// "Q4_K", "F8_E4M3".
    pub format: String,
    /// Outermost first.
    pub dims: Vec<i64>,
    /// Its size.
    pub bytes: u64,
}

/// The sampling that the makers of a checkpoint recommend.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct RecommendedSampling {
    pub temperature: f64,
    pub top_p: f64,
    pub top_k: i32,
    pub min_p: f64,
    pub repetition_penalty: f64,
    pub penalty_last_n: i32,
    /// "generation_config.json", "general.sampling", or empty if the checkpoint recommends nothing.
    pub source: String,
}

/// The headers of a checkpoint. Any thread may use it.
pub struct Checkpoint {
    handle: *mut sys::minim_checkpoint,
    _runtime: Arc<Shared>,
}

// "immutable, any thread"
unsafe impl Send for Checkpoint {}
unsafe impl Sync for Checkpoint {}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        unsafe { sys::minim_checkpoint_close(self.handle) }
    }
}

impl Checkpoint {
    pub(crate) fn of_raw(handle: *mut sys::minim_checkpoint, runtime: &Arc<Shared>) -> Self {
        Checkpoint { handle, _runtime: Arc::clone(runtime) }
    }

    /// Opens the headers of a GGUF file or a safetensors folder. Errors: `NotFound`, `Io`, `Format` with a reason.
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        let handle = create(|out, err| unsafe { sys::minim_checkpoint_open(runtime.0.handle, path.as_ptr(), out, err) })?;
        Ok(Self::of_raw(handle, &runtime.0))
    }

    /// Opens an open GGUF file or folder, which may be closed afterwards.
    pub fn open_fd(runtime: &Runtime, file: impl AsFd) -> Result<Self> {
        let file = file.as_fd().as_raw_fd();
        let handle = create(|out, err| unsafe { sys::minim_checkpoint_open_fd(runtime.0.handle, file, out, err) })?;
        Ok(Self::of_raw(handle, &runtime.0))
    }

    /// Returns the number of its files.
    pub fn file_count(&self) -> usize {
        unsafe { sys::minim_checkpoint_file_count(self.handle) }
    }

    /// Returns the bytes of all its files.
    pub fn file_bytes(&self) -> u64 {
        unsafe { sys::minim_checkpoint_file_bytes(self.handle) }
    }

    /// Returns the keys of the metadata, in file order.
    pub fn metadata_keys(&self) -> Vec<String> {
        let count = unsafe { sys::minim_checkpoint_metadata_count(self.handle) };
        (0..count).map(|index| unsafe { text_of(sys::minim_checkpoint_metadata_key(self.handle, index)) }).collect()
    }

    /// Returns the value of a key as text, with at most `max_array` elements of an array; 0: all. Errors: `NotFound`.
    pub fn metadata(&self, key: &str, max_array: usize) -> Result<String> {
        let key = c_text(key, "the key")?;
        let text = create(|out, err| unsafe { sys::minim_checkpoint_metadata(self.handle, key.as_ptr(), max_array, out, err) })?;
        Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
    }

    /// Returns the tensors.
    pub fn tensors(&self) -> Result<Vec<TensorInfo>> {
        let tensor = |index| {
            let mut info = sys::minim_tensor_info::default();
            check(|err| unsafe { sys::minim_checkpoint_tensor(self.handle, index, &mut info, err) })?;
            Ok(TensorInfo {
                name: unsafe { text_of(info.name) },
                format: unsafe { text_of(info.format) },
                dims: info.dims[..info.n_dims as usize].to_vec(),
                bytes: info.bytes,
            })
        };
        (0..unsafe { sys::minim_checkpoint_tensor_count(self.handle) }).map(tensor).collect()
    }

    /// Returns the sampling that its makers recommend.
    pub fn recommended_sampling(&self) -> Result<RecommendedSampling> {
        let mut sampling = sys::minim_recommended_sampling::default();
        check(|err| unsafe { sys::minim_checkpoint_recommended_sampling(self.handle, &mut sampling, err) })?;
        Ok(RecommendedSampling {
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
            penalty_last_n: sampling.penalty_last_n,
            source: unsafe { text_of(sampling.source) },
        })
    }
}
