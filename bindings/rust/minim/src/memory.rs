// SPDX-License-Identifier: Apache-2.0
//! Where a model is: devices, their memory and caches of experts, NUMA nodes.

use std::path::Path;

use minim_sys as sys;

use crate::error::{check, Result};
use crate::model::Model;
use crate::raw::{c_path, text_of};

/// Memory of a device that a model uses, in bytes unless stated.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // minim.h (minim_device_memory) has a line for each
pub struct DeviceMemory {
    pub name: String,
    pub first_layer: i32,
    pub n_layer: i32,
    pub n_expert_layers: i64,
    pub weights_mapped: bool,
    pub weight_bytes: u64,
    pub expert_bytes: u64,
    pub kv_bytes: u64,
    pub work_bytes: u64,
    /// `None` if unknown.
    pub free_bytes: Option<u64>,
    pub kept_bytes: u64,
    /// `None`: no limit.
    pub budget_bytes: Option<u64>,
    pub token_in_bytes: u64,
    pub token_out_bytes: u64,
    pub locked_bytes: u64,
}

/// A device's cache of experts, counted since the model was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct ExpertCache {
    pub n_places: i64,
    pub n_hits: i64,
    pub n_misses: i64,
    pub n_moves: i64,
    pub bytes: u64,
    pub moved_bytes: u64,
}

/// A NUMA node of the host and the weights in its memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct NodeMemory {
    pub node: i32,
    pub n_threads: i32,
    pub n_threads_decode: i32,
    /// Planned for it; 0: anywhere.
    pub wanted_bytes: u64,
    pub weight_bytes: u64,
}

impl Model {
    fn device_count(&self) -> usize {
        unsafe { sys::minim_model_device_count(self.0.handle) }
    }

    /// Returns the memory in use on each device now, in the order of the layers; devices with only experts come last.
    pub fn memory(&self) -> Result<Vec<DeviceMemory>> {
        let device = |index| {
            let mut info = sys::minim_device_memory::default();
            check(|err| unsafe { sys::minim_model_device_memory(self.0.handle, index, &mut info, err) })?;
            Ok(DeviceMemory {
                name: unsafe { text_of(info.name) },
                first_layer: info.first_layer,
                n_layer: info.n_layer,
                n_expert_layers: info.n_expert_layers,
                weights_mapped: info.weights_mapped != 0,
                weight_bytes: info.weight_bytes,
                expert_bytes: info.expert_bytes,
                kv_bytes: info.kv_bytes,
                work_bytes: info.work_bytes,
                free_bytes: (info.free_bytes != u64::MAX).then_some(info.free_bytes),
                kept_bytes: info.kept_bytes,
                budget_bytes: (info.budget_bytes != 0).then_some(info.budget_bytes),
                token_in_bytes: info.token_in_bytes,
                token_out_bytes: info.token_out_bytes,
                locked_bytes: info.locked_bytes,
            })
        };
        (0..self.device_count()).map(device).collect()
    }

    /// Returns the cache of experts of each device of [`memory`](Self::memory).
    pub fn expert_caches(&self) -> Result<Vec<ExpertCache>> {
        let cache = |index| {
            let mut info = sys::minim_expert_cache::default();
            check(|err| unsafe { sys::minim_model_expert_cache(self.0.handle, index, &mut info, err) })?;
            Ok(ExpertCache {
                n_places: info.n_places,
                n_hits: info.n_hits,
                n_misses: info.n_misses,
                n_moves: info.n_moves,
                bytes: info.bytes,
                moved_bytes: info.moved_bytes,
            })
        };
        (0..self.device_count()).map(cache).collect()
    }

    /// Returns the devices of a layer and of its experts, as indices into [`memory`](Self::memory).
    pub fn layer_devices(&self, layer: i32) -> Result<(usize, usize)> {
        let mut devices = sys::minim_layer_devices::default();
        check(|err| unsafe { sys::minim_model_layer_devices(self.0.handle, layer, &mut devices, err) })?;
        Ok((devices.device as usize, devices.experts as usize))
    }

    /// Writes which experts were used recently, for [`ModelOptions::expert_profile`](crate::ModelOptions::expert_profile).
    pub fn save_expert_profile(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|err| unsafe { sys::minim_model_save_expert_profile(self.0.handle, path.as_ptr(), err) })
    }

    /// Returns the NUMA nodes with cores for this process or weights of this model. Errors: `Unsupported` (the system does not report
    /// them).
    pub fn nodes(&self) -> Result<Vec<NodeMemory>> {
        let (mut nodes, mut count) = (Vec::new(), 0);
        loop {
            nodes.resize(count, sys::minim_node_memory::default());
            check(|err| unsafe { sys::minim_model_nodes(self.0.handle, nodes.as_mut_ptr(), nodes.len(), &mut count, err) })?;
            if count <= nodes.len() {
                break;
            }
        }
        let node = |node: &sys::minim_node_memory| NodeMemory {
            node: node.node,
            n_threads: node.n_threads,
            n_threads_decode: node.n_threads_decode,
            wanted_bytes: node.wanted_bytes,
            weight_bytes: node.weight_bytes,
        };
        Ok(nodes[..count].iter().map(node).collect())
    }
}
