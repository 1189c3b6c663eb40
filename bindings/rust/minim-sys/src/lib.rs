// SPDX-License-Identifier: Apache-2.0
//! The C interface of minim as it is. `minim.h` is its manual; the crate `minim` wraps it safely.
//!
//! Structs have a `Default` that fills in `size`: every other field is zero, which stands for its default.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_void};

include!("bindings.rs");
