// SPDX-License-Identifier: Apache-2.0
//! The text of tokens that come one by one.

use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::error::{check, Result};
use crate::model::ModelHandle;
use crate::raw::text_of_length;

/// Decodes tokens as they come; made by [`Model::decoder`](crate::Model::decoder).
pub struct Decoder {
    pub(crate) handle: *mut sys::minim_decoder,
    pub(crate) _model: Arc<ModelHandle>,
}

// "one thread at a time": it may move.
unsafe impl Send for Decoder {}

impl Drop for Decoder {
    fn drop(&mut self) {
        unsafe { sys::minim_decoder_free(self.handle) }
    }
}

impl Decoder {
    /// Adds a token and returns the whole UTF-8 sequences so far. At most 3 bytes are held back.
    pub fn push(&mut self, id: i32) -> Result<String> {
        let (mut text, mut length) = (ptr::null(), 0);
        check(|err| unsafe { sys::minim_decoder_push(self.handle, id, &mut text, &mut length, err) })?;
        Ok(unsafe { text_of_length(text, length) }.unwrap_or_default())
    }

    /// Returns U+FFFD for an incomplete sequence, and starts anew.
    pub fn finish(&mut self) -> Result<String> {
        let (mut text, mut length) = (ptr::null(), 0);
        check(|err| unsafe { sys::minim_decoder_finish(self.handle, &mut text, &mut length, err) })?;
        Ok(unsafe { text_of_length(text, length) }.unwrap_or_default())
    }
}
