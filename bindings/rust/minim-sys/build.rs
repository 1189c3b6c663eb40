// SPDX-License-Identifier: Apache-2.0
//! Where the library is: built here (feature `vendored`), in the folder MINIM_LIB_DIR, or where pkg-config says.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> String {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("cannot run {command:?}: {error}"),
    };
    if !output.status.success() {
        panic!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn build_library() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if !sources.join("include/minim/minim.h").is_file() {
        panic!("the sources of minim are not in {sources:?}: the feature `vendored` needs its repository or source archive");
    }
    let build = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR")).join("build");
    let options = ["BUILD_TESTING", "MINIM_BUILD_PROGRAMS", "MINIM_BUILD_SHARED", "MINIM_CUDA", "MINIM_HWLOC", "MINIM_WERROR"];
    run(Command::new("cmake")
        .arg("-S")
        .arg(&sources)
        .arg("-B")
        .arg(&build)
        .arg("-DCMAKE_BUILD_TYPE=Release")
        .args(options.map(|option| format!("-D{option}=OFF"))));
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "1".into());
    run(Command::new("cmake").arg("--build").arg(&build).args(["--target", "minim_static", "-j", &jobs]));
    for folder in ["lib", "capi", "include", "CMakeLists.txt"] {
        println!("cargo:rerun-if-changed={}", sources.join(folder).display());
    }
    println!("cargo:rustc-link-search=native={}", build.display());
    println!("cargo:rustc-link-lib=static=minim");
    println!("cargo:rustc-link-lib=stdc++");
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MINIM_LIB_DIR");
    if env::var_os("CARGO_FEATURE_VENDORED").is_some() {
        return build_library();
    }
    if let Some(folder) = env::var_os("MINIM_LIB_DIR") {
        println!("cargo:rustc-link-search=native={}", Path::new(&folder).display());
        println!("cargo:rustc-link-lib=minim");
        return;
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    for word in run(Command::new("pkg-config").args(["--libs", "minim"])).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}
