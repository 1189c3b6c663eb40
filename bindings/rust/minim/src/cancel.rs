//! Ending calls that are under way.

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

/// A switch that ends the calls it was given to with [`Status::Cancelled`](crate::Status). Clones are the same switch.
#[derive(Clone)]
pub struct Cancel(Arc<Handle>);

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Result<Self> {
        let handle = create(|out, err| unsafe { sys::minim_cancel_create(out, err) })?;
        Ok(Cancel(Arc::new(Handle(handle))))
    }

    /// Ends work in progress, and what begins later, until [`reset`](Self::reset).
    pub fn trigger(&self) {
        unsafe { sys::minim_cancel_trigger(self.0 .0) }
    }

    /// Switches it off.
    pub fn reset(&self) {
        unsafe { sys::minim_cancel_reset(self.0 .0) }
    }

    pub(crate) fn raw(cancel: Option<&Cancel>) -> *mut sys::minim_cancel {
        cancel.map_or(ptr::null_mut(), |cancel| cancel.0 .0)
    }
}
