// SPDX-License-Identifier: Apache-2.0
//! Predictions of where weights go and how fast a model will be.

use std::ffi::CString;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr;

use minim_sys as sys;

use crate::error::Result;
use crate::options::KvFormat;
use crate::raw::{c_path, c_text, create, pointer_or_null, take_text};
use crate::runtime::Runtime;

/// The options of [`plan`].
#[derive(Clone, Default)]
pub struct PlanOptions {
    params: sys::minim_plan_params,
    devices: Option<Vec<String>>,
    host: Option<String>,
    overrides: Option<String>,
    link: Option<String>,
    split: Vec<f64>,
}

// The pointers of `params` are set only during a call.
unsafe impl Send for PlanOptions {}
unsafe impl Sync for PlanOptions {}

impl PlanOptions {
    /// Returns the options for sequences of `context` tokens, on the devices of this machine.
    pub fn new(context: i64) -> Self {
        let mut options = Self::default();
        options.params.n_context = context;
        options
    }

    /// Sets the devices: texts such as "cuda:0=96GiB,1790GB/s,pcie=50GB/s", which need not exist; none: the CPU alone.
    pub fn devices(mut self, devices: &[&str]) -> Self {
        self.devices = Some(devices.iter().map(|&device| device.into()).collect());
        self
    }

    /// Sets the host, "768GiB,576GB/s". Default: this machine.
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Sets the number of concurrent sequences.
    pub fn sequences(mut self, count: i32) -> Self {
        self.params.n_sequences = count;
        self
    }

    /// Sets the rows of a step of a prompt.
    pub fn ubatch(mut self, rows: i32) -> Self {
        self.params.n_ubatch = rows;
        self
    }

    /// Sets the format of the KV cache.
    pub fn kv(mut self, format: KvFormat) -> Self {
        self.params.k_format = format as i32;
        self.params.v_format = format as i32;
        self
    }

    /// Puts experts on another device than their layer, as [`ModelOptions::overrides`](crate::ModelOptions::overrides).
    pub fn overrides(mut self, rules: &str) -> Self {
        self.overrides = Some(rules.into());
        self
    }

    /// Sets the devices' shares of the layers.
    pub fn split(mut self, shares: &[f64]) -> Self {
        self.split = shares.to_vec();
        self
    }

    /// Sets the ranks that share every layer, the groups of them that have whole experts of their own, and the stages of layers. 0: not
    /// said; -1, not of stages: one on each device.
    pub fn parallel(mut self, tensor: i32, experts: i32, pipeline: i32) -> Self {
        self.params.tensor_parallel = tensor;
        self.params.expert_parallel = experts;
        self.params.pipeline_parallel = pipeline;
        self
    }

    /// Sets what connects the ranks, "9us,20GB/s": the time to add up a few KB on all of them, and the bandwidth of each.
    pub fn link(mut self, link: &str) -> Self {
        self.link = Some(link.into());
        self
    }
}

/// Plans where the weights of a checkpoint go, how much memory they use, and how fast that will be. Returns the JSON object that minim.h
/// (`minim_plan_make`) describes.
pub fn plan(runtime: &Runtime, path: impl AsRef<Path>, options: &PlanOptions) -> Result<String> {
    let path = c_path(path.as_ref())?;
    let names = options.devices.iter().flatten().map(|device| c_text(device, "the device"));
    let devices = names.collect::<Result<Vec<CString>>>()?;
    let mut pointers: Vec<*const c_char> = devices.iter().map(|device| device.as_ptr()).collect();
    pointers.push(ptr::null()); // gives an address without devices, too
    let host = options.host.as_deref().map(|host| c_text(host, "the host")).transpose()?;
    let overrides = options.overrides.as_deref().map(|rules| c_text(rules, "the overrides")).transpose()?;
    let link = options.link.as_deref().map(|link| c_text(link, "the link")).transpose()?;
    let mut params = options.params;
    params.link = pointer_or_null(&link);
    if options.devices.is_some() {
        params.devices = pointers.as_ptr();
        params.n_devices = devices.len();
    }
    params.host = pointer_or_null(&host);
    params.overrides = pointer_or_null(&overrides);
    if !options.split.is_empty() {
        params.split = options.split.as_ptr();
        params.n_split = options.split.len();
    }
    let text = create(|out, err| unsafe { sys::minim_plan_make(runtime.0.handle, path.as_ptr(), &params, out, err) })?;
    Ok(String::from_utf8_lossy(&unsafe { take_text(text) }).into_owned())
}
