// SPDX-License-Identifier: Apache-2.0
//! The library's version and the devices.

use minim_sys as sys;

use crate::error::{check, Result};
use crate::raw::{c_text, create, text_of};

/// Returns the library's version, "0.1.0".
pub fn version() -> String {
    unsafe { text_of(sys::minim_version()) }
}

/// Returns one line about the build: version, compiler, instruction sets.
pub fn build_info() -> String {
    unsafe { text_of(sys::minim_build_info()) }
}

/// Returns whether the build has a feature: "gguf", "safetensors", "cpu", "reference", "avx2", "avx512", "cuda".
pub fn has_feature(name: &str) -> bool {
    c_text(name, "the feature").map_or(false, |name| unsafe { sys::minim_has_feature(name.as_ptr()) } == 1)
}

/// A device for computation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Device {
    /// "cpu", "cuda:0".
    pub name: String,
    /// The name of the product.
    pub description: String,
    /// The reason that it cannot be used; `None` if it can.
    pub why_not: Option<String>,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The free memory in bytes.
    pub free_bytes: u64,
    /// Its memory is the host's.
    pub unified: bool,
}

/// Returns the devices, the CPU first.
pub fn devices() -> Result<Vec<Device>> {
    let runtime = crate::Runtime::builder().threads(1).build()?;
    let list = create(|out, err| unsafe { sys::minim_devices_list(runtime.0.handle, out, err) })?;
    let count = unsafe { sys::minim_devices_count(list) };
    let devices = (0..count).map(|index| {
        let mut info = sys::minim_device_info::default();
        check(|err| unsafe { sys::minim_devices_get(list, index, &mut info, err) })?;
        let text = |text| unsafe { text_of(text) };
        Ok(Device {
            name: text(info.name),
            description: text(info.description),
            why_not: if info.usable == 0 { Some(text(info.reason)) } else { None },
            memory_bytes: info.memory_bytes,
            free_bytes: info.free_bytes,
            unified: info.unified != 0,
        })
    });
    let devices = devices.collect();
    unsafe { sys::minim_devices_free(list) };
    devices
}
