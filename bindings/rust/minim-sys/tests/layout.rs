// SPDX-License-Identifier: Apache-2.0
//! The structs lie in memory as the C compiler lays them out.

use std::collections::HashMap;
use std::process::Command;

/// {struct: (size, {field: offset})} of a program that prints "STRUCT FIELD OFFSET SIZE" a line.
fn compiled(program: &str) -> HashMap<String, (usize, HashMap<String, usize>)> {
    let output = Command::new(program).output().expect(program);
    let mut layouts: HashMap<String, (usize, HashMap<String, usize>)> = HashMap::new();
    for line in String::from_utf8(output.stdout).expect("UTF-8").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let entry = layouts.entry(words[0].to_string()).or_default();
        if words[1] == "-" {
            entry.0 = words[3].parse().expect("a size");
        } else {
            entry.1.insert(words[1].to_string(), words[2].parse().expect("an offset"));
        }
    }
    layouts
}

#[test]
fn structs_are_laid_out_as_c_has_them() {
    let compiled = match std::env::var("MINIM_ABI_LAYOUT") {
        Ok(program) => compiled(&program),
        Err(_) => return eprintln!("skipped: MINIM_ABI_LAYOUT names no program that prints the layout"),
    };
    assert_eq!(compiled.len(), minim_sys::LAYOUTS.len());
    for (name, size, fields) in minim_sys::LAYOUTS {
        let (compiled_size, offsets) = &compiled[*name];
        assert_eq!(compiled_size, size, "{name}");
        assert_eq!(offsets.len(), fields.len(), "{name}");
        for (field, offset) in *fields {
            assert_eq!(offsets[*field], *offset, "{name}.{field}");
        }
    }
}

#[test]
fn the_library_is_of_the_header_s_version() {
    let version = unsafe { std::ffi::CStr::from_ptr(minim_sys::minim_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

#[test]
fn defaults_have_their_size() {
    assert_eq!(minim_sys::minim_error::default().size as usize, std::mem::size_of::<minim_sys::minim_error>());
    let params = minim_sys::minim_request_params::default();
    assert!(params.notify.is_none() && params.notify_user_data.is_null() && params.timeout_ms == 0);
}
