//! The library itself, and what there is to compute on.

use minim_sys as sys;

use crate::error::{check, Result};
use crate::raw::{create, text_of};

/// The library's version, "0.1.0".
pub fn version() -> String {
    unsafe { text_of(sys::minim_version()) }
}

/// Something to compute on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Device {
    /// "cpu", "cuda:0".
    pub name: String,
    /// As its maker calls it.
    pub description: String,
    /// Why it cannot be used; `None` where it can.
    pub why_not: Option<String>,
    /// All its memory.
    pub memory_bytes: u64,
    /// What is free now.
    pub free_bytes: u64,
}

/// The devices there are, the processor first.
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
        })
    });
    let devices = devices.collect();
    unsafe { sys::minim_devices_free(list) };
    devices
}
