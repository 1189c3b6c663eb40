// SPDX-License-Identifier: Apache-2.0
//! Cancelling calls.

use std::ptr;
use std::sync::Arc;

use minim_sys as sys;

use crate::error::Result;
use crate::raw::create;

struct Handle(*mut sys::minim_cancel);

// "any thread; trigger also from a signal handler"
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { sys::minim_cancel_free(self.0) }
    }
}

/// Cancels the calls that it was passed to: they fail with [`Status::Cancelled`](crate::Status). Clones share one state.
#[derive(Clone)]
pub struct Cancel(Arc<Handle>);

impl Cancel {
    /// Makes one that is not triggered.
    pub fn new() -> Result<Self> {
        let handle = create(|out, err| unsafe { sys::minim_cancel_create(out, err) })?;
        Ok(Cancel(Arc::new(Handle(handle))))
    }

    /// Cancels running calls, and later ones until [`reset`](Self::reset).
    pub fn trigger(&self) {
        unsafe { sys::minim_cancel_trigger(self.0 .0) }
    }

    /// Resets it, so that later calls run.
    pub fn reset(&self) {
        unsafe { sys::minim_cancel_reset(self.0 .0) }
    }

    pub(crate) fn raw(cancel: Option<&Cancel>) -> *mut sys::minim_cancel {
        cancel.map_or(ptr::null_mut(), |cancel| cancel.0 .0)
    }
}
