// SPDX-License-Identifier: Apache-2.0
//! Conversions of texts and arrays for the C interface.

use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::path::Path;
use std::ptr;

use minim_sys as sys;

use crate::error::{check, Error, Result};

/// Makes a handle with a call that writes it to its out-parameter.
pub(crate) fn create<T>(call: impl FnOnce(*mut *mut T, *mut sys::minim_error) -> sys::minim_status) -> Result<*mut T> {
    let mut out = ptr::null_mut();
    check(|err| call(&mut out, err))?;
    Ok(out)
}

pub(crate) fn c_text(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::invalid(format!("{what} holds a null character at byte {}", error.nul_position())))
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::invalid(format!("the path {path:?} holds a null character")))
}

pub(crate) fn pointer_or_null(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Returns a zero-terminated text of the library; empty for NULL.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// Returns a text with a length; `None` for NULL.
pub(crate) unsafe fn text_of_length(text: *const c_char, length: usize) -> Option<String> {
    if text.is_null() {
        return None;
    }
    let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length);
    Some(String::from_utf8_lossy(bytes).into_owned())
}

pub(crate) unsafe fn take_text(text: *mut sys::minim_text) -> Vec<u8> {
    let data = sys::minim_text_data(text).cast::<u8>();
    let bytes = std::slice::from_raw_parts(data, sys::minim_text_length(text)).to_vec();
    sys::minim_text_free(text);
    bytes
}

pub(crate) unsafe fn take_tokens(tokens: *mut sys::minim_tokens) -> Vec<i32> {
    let count = sys::minim_tokens_count(tokens);
    let ids = match count {
        0 => Vec::new(),
        _ => std::slice::from_raw_parts(sys::minim_tokens_data(tokens), count).to_vec(),
    };
    sys::minim_tokens_free(tokens);
    ids
}
