// SPDX-License-Identifier: Apache-2.0
// The types and calls of minim.h. Written by tools/describe_abi.py from include/minim/minim.h; do not edit.
// On machines of 64 bits.

pub type minim_status_code = i32;
pub type minim_specials = i32;
pub type minim_reason = i32;
pub type minim_log_level = i32;
pub type minim_numa = i32;
pub type minim_kv_format = i32;
pub type minim_convert_effort = i32;
pub type minim_residence = i32;
pub type minim_expand = i32;
pub type minim_expert_moves = i32;
pub type minim_token_attribute = i32;
pub type minim_null_content = i32;
pub type minim_chat_format = i32;
pub type minim_reasoning = i32;
pub type minim_delta = i32;
pub type minim_importance_format = i32;
pub type minim_option_type = i32;
pub type minim_finish = i32;
pub type minim_next = i32;

pub const MINIM_OK: minim_status_code = 0;
pub const MINIM_E_INVALID: minim_status_code = 1;
pub const MINIM_E_NOT_FOUND: minim_status_code = 2;
pub const MINIM_E_IO: minim_status_code = 3;
pub const MINIM_E_FORMAT: minim_status_code = 4;
pub const MINIM_E_UNSUPPORTED: minim_status_code = 5;
pub const MINIM_E_OUT_OF_MEMORY: minim_status_code = 6;
pub const MINIM_E_OUT_OF_DEVICE_MEMORY: minim_status_code = 7;
pub const MINIM_E_CONTEXT_FULL: minim_status_code = 8;
pub const MINIM_E_CANCELLED: minim_status_code = 9;
pub const MINIM_E_DEVICE_LOST: minim_status_code = 10;
pub const MINIM_E_BUSY: minim_status_code = 11;
pub const MINIM_E_INTERNAL: minim_status_code = 12;
pub const MINIM_E_PEER_LOST: minim_status_code = 13;
pub const MINIM_SPECIALS_EXACT: minim_specials = 0;
pub const MINIM_SPECIALS_SAFE: minim_specials = 1;
pub const MINIM_SPECIALS_NONE: minim_specials = 2;
pub const MINIM_SPECIALS_TEMPLATE: minim_specials = 3;
pub const MINIM_REASON_NONE: minim_reason = 0;
pub const MINIM_REASON_TRUNCATED: minim_reason = 1;
pub const MINIM_REASON_FORMAT: minim_reason = 2;
pub const MINIM_REASON_LIMIT: minim_reason = 3;
pub const MINIM_REASON_TYPE: minim_reason = 4;
pub const MINIM_REASON_SHAPE: minim_reason = 5;
pub const MINIM_REASON_OFFSET: minim_reason = 6;
pub const MINIM_REASON_DUPLICATE: minim_reason = 7;
pub const MINIM_REASON_VALUE: minim_reason = 8;
pub const MINIM_REASON_IO: minim_reason = 9;
pub const MINIM_LOG_OFF: minim_log_level = 0;
pub const MINIM_LOG_ERROR: minim_log_level = 1;
pub const MINIM_LOG_WARNING: minim_log_level = 2;
pub const MINIM_LOG_INFO: minim_log_level = 3;
pub const MINIM_LOG_DEBUG: minim_log_level = 4;
pub const MINIM_NUMA_AUTO: minim_numa = 0;
pub const MINIM_NUMA_OFF: minim_numa = 1;
pub const MINIM_NUMA_INTERLEAVE: minim_numa = 2;
pub const MINIM_NUMA_SPLIT: minim_numa = 3;
pub const MINIM_KV_AUTO: minim_kv_format = 0;
pub const MINIM_KV_F16: minim_kv_format = 1;
pub const MINIM_KV_F32: minim_kv_format = 2;
pub const MINIM_KV_BF16: minim_kv_format = 3;
pub const MINIM_KV_Q8_0: minim_kv_format = 4;
pub const MINIM_KV_Q4_0: minim_kv_format = 5;
pub const MINIM_CONVERT_EFFORT_FULL: minim_convert_effort = 0;
pub const MINIM_CONVERT_EFFORT_FAST: minim_convert_effort = 1;
pub const MINIM_RESIDENCE_AUTO: minim_residence = 0;
pub const MINIM_RESIDENCE_MAPPED: minim_residence = 1;
pub const MINIM_RESIDENCE_OWNED: minim_residence = 2;
pub const MINIM_EXPAND_AUTO: minim_expand = 0;
pub const MINIM_EXPAND_OFF: minim_expand = 1;
pub const MINIM_EXPAND_ON: minim_expand = 2;
pub const MINIM_EXPERT_MOVES_AUTO: minim_expert_moves = 0;
pub const MINIM_EXPERT_MOVES_FIXED: minim_expert_moves = 1;
pub const MINIM_EXPERT_MOVES_REPRODUCIBLE: minim_expert_moves = 2;
pub const MINIM_EXPERT_MOVES_EAGER: minim_expert_moves = 3;
pub const MINIM_TOKEN_CONTROL: minim_token_attribute = 1;
pub const MINIM_TOKEN_USER_DEFINED: minim_token_attribute = 2;
pub const MINIM_TOKEN_UNUSED: minim_token_attribute = 4;
pub const MINIM_TOKEN_END: minim_token_attribute = 8;
pub const MINIM_TOKEN_BOS: minim_token_attribute = 16;
pub const MINIM_NULL_CONTENT_TEMPLATE: minim_null_content = 0;
pub const MINIM_NULL_CONTENT_EMPTY: minim_null_content = 1;
pub const MINIM_CHAT_FORMAT_M2: minim_chat_format = 0;
pub const MINIM_CHAT_FORMAT_M3: minim_chat_format = 1;
pub const MINIM_REASONING_SPLIT: minim_reasoning = 0;
pub const MINIM_REASONING_APPEND_THINK: minim_reasoning = 1;
pub const MINIM_REASONING_NONE: minim_reasoning = 2;
pub const MINIM_DELTA_REASONING: minim_delta = 1;
pub const MINIM_DELTA_CONTENT: minim_delta = 2;
pub const MINIM_DELTA_TOOL_CALL: minim_delta = 3;
pub const MINIM_IMPORTANCE_AUTO: minim_importance_format = 0;
pub const MINIM_IMPORTANCE_GGUF: minim_importance_format = 1;
pub const MINIM_IMPORTANCE_DAT: minim_importance_format = 2;
pub const MINIM_OPTION_I64: minim_option_type = 1;
pub const MINIM_OPTION_F64: minim_option_type = 2;
pub const MINIM_FINISH_NONE: minim_finish = 0;
pub const MINIM_FINISH_END: minim_finish = 1;
pub const MINIM_FINISH_STOP_TEXT: minim_finish = 2;
pub const MINIM_FINISH_LENGTH: minim_finish = 3;
pub const MINIM_FINISH_CONTEXT_FULL: minim_finish = 4;
pub const MINIM_FINISH_STOPPED: minim_finish = 5;
pub const MINIM_FINISH_TIMEOUT: minim_finish = 6;
pub const MINIM_FINISH_TOOL_CALLS: minim_finish = 7;
pub const MINIM_FINISH_LOOP: minim_finish = 8;
pub const MINIM_NEXT_END: minim_next = 0;
pub const MINIM_NEXT_TOKEN: minim_next = 1;
pub const MINIM_NEXT_PENDING: minim_next = 2;

pub type minim_status = i32;

#[repr(C)]
pub struct minim_runtime {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_checkpoint {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_model {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_session {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_sampling {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_tokens {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_text {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_decoder {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_cancel {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_output_parser {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_output {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_devices {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_importance {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_constraint {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_engine {
    _private: [u8; 0],
}

#[repr(C)]
pub struct minim_request {
    _private: [u8; 0],
}

pub type minim_token_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, token: *const minim_token) -> i32>;

pub type minim_log_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, level: i32, line: *const c_char)>;

pub type minim_task_fn = Option<unsafe extern "C" fn(context: *const c_void, index: i64, slot: i32)>;

pub type minim_parallel_for_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, n_tasks: i64, task: minim_task_fn, context: *const c_void)>;

pub type minim_convert_progress_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, progress: *const minim_convert_progress) -> i32>;

pub type minim_progress_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, done_bytes: u64, total_bytes: u64) -> i32>;

pub type minim_notify_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_error {
    pub size: u32,
    pub status: i32,
    pub reason: i32,
    pub device: i32,
    pub os_code: i64,
    pub requested: i64,
    pub available: i64,
    pub offset: i64,
    pub message: [c_char; 1024],
}
const _: () = assert!(core::mem::size_of::<minim_error>() == 1072);
impl Default for minim_error {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 1072, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_session_params {
    pub size: u32,
    pub flags: u32,
    pub max_context: u64,
    pub k_format: i32,
    pub v_format: i32,
    pub n_batch: i32,
    pub n_ubatch: i32,
}
const _: () = assert!(core::mem::size_of::<minim_session_params>() == 32);
impl Default for minim_session_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_token_probability {
    pub id: i32,
    pub logprob: f32,
}
const _: () = assert!(core::mem::size_of::<minim_token_probability>() == 8);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_token {
    pub size: u32,
    pub id: i32,
    pub text: *const c_char,
    pub text_length: usize,
    pub logprob: f32,
    pub n_top: i32,
    pub top: *const minim_token_probability,
    pub prompt_rank: i32,
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<minim_token>() == 48);
impl Default for minim_token {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 48, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_runtime_params {
    pub size: u32,
    pub flags: u32,
    pub n_threads: i32,
    pub log_level: i32,
    pub log: minim_log_fn,
    pub log_user_data: *mut c_void,
    pub n_threads_decode: i32,
    pub pin_threads: i32,
    pub parallel_for: minim_parallel_for_fn,
    pub parallel_for_user_data: *mut c_void,
    pub numa: i32,
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<minim_runtime_params>() == 64);
impl Default for minim_runtime_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 64, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_recommended_sampling {
    pub size: u32,
    pub top_k: i32,
    pub temperature: f64,
    pub top_p: f64,
    pub min_p: f64,
    pub repetition_penalty: f64,
    pub penalty_last_n: i32,
    pub reserved: i32,
    pub source: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_recommended_sampling>() == 56);
impl Default for minim_recommended_sampling {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 56, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_tensor_info {
    pub size: u32,
    pub n_dims: i32,
    pub dims: [i64; 8],
    pub bytes: u64,
    pub name: *const c_char,
    pub format: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_tensor_info>() == 96);
impl Default for minim_tensor_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 96, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_device_info {
    pub size: u32,
    pub usable: i32,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub name: *const c_char,
    pub description: *const c_char,
    pub reason: *const c_char,
    pub unified: i32,
    pub reserved: i32,
}
const _: () = assert!(core::mem::size_of::<minim_device_info>() == 56);
impl Default for minim_device_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 56, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_plan_params {
    pub size: u32,
    pub flags: u32,
    pub devices: *const *const c_char,
    pub n_devices: usize,
    pub host: *const c_char,
    pub n_context: i64,
    pub n_sequences: i32,
    pub n_ubatch: i32,
    pub k_format: i32,
    pub v_format: i32,
    pub overrides: *const c_char,
    pub split: *const f64,
    pub n_split: usize,
    pub n_device_layers: i32,
    pub for_engine: i32,
    pub n_host_experts: i64,
    pub expert_cache_bytes: u64,
    pub tensor_parallel: i32,
    pub expert_parallel: i32,
    pub pipeline_parallel: i32,
    pub reserved: i32,
    pub link: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_plan_params>() == 128);
impl Default for minim_plan_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 128, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_convert_progress {
    pub size: u32,
    pub reserved: i32,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub n_done: i64,
    pub n_tensors: i64,
    pub tensor: *const c_char,
    pub result: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_convert_progress>() == 56);
impl Default for minim_convert_progress {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 56, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_convert_params {
    pub size: u32,
    pub flags: u32,
    pub recipe: *const c_char,
    pub matrix_type: *const c_char,
    pub rules: *const *const c_char,
    pub n_rules: usize,
    pub output_type: *const c_char,
    pub embedding_type: *const c_char,
    pub keep_output: i32,
    pub pure: i32,
    pub allow_requantize: i32,
    pub without_importance: i32,
    pub imatrix: *const c_char,
    pub include_weights: *const *const c_char,
    pub n_include_weights: usize,
    pub exclude_weights: *const *const c_char,
    pub n_exclude_weights: usize,
    pub effort: i32,
    pub no_hashes: i32,
    pub name: *const c_char,
    pub unset: *const *const c_char,
    pub n_unset: usize,
    pub set: *const *const c_char,
    pub n_set: usize,
    pub set_text: *const *const c_char,
    pub n_set_text: usize,
    pub part_bytes: u64,
    pub part_tensors: i64,
    pub first_part_empty: i32,
    pub keep_parts: i32,
    pub dry_run: i32,
    pub overwrite: i32,
    pub restart: i32,
    pub no_verify: i32,
    pub memory_bytes: u64,
    pub progress: minim_convert_progress_fn,
    pub progress_user_data: *mut c_void,
    pub layout: *const c_char,
    pub keep_experts: *const c_char,
    pub reuse: *const c_char,
    pub container: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_convert_params>() == 272);
impl Default for minim_convert_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 272, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_model_params {
    pub size: u32,
    pub flags: u32,
    pub backend: *const c_char,
    pub residence: i32,
    pub engine_tokenizer: i32,
    pub progress: minim_progress_fn,
    pub progress_user_data: *mut c_void,
    pub devices: *const c_char,
    pub split: *const f64,
    pub n_split: usize,
    pub n_device_layers: i32,
    pub allow_cpu: i32,
    pub budgets: *const u64,
    pub n_budgets: usize,
    pub overrides: *const c_char,
    pub n_host_experts: i64,
    pub fit_context: i64,
    pub lock: i32,
    pub prefault: i32,
    pub deterministic: i32,
    pub expand: i32,
    pub packed_file: *const c_char,
    pub expert_cache_bytes: u64,
    pub expert_moves: i32,
    pub fit_k_format: i32,
    pub fit_v_format: i32,
    pub fit_n_ubatch: i32,
    pub expert_profile: *const c_char,
    pub fit_requests: i64,
    pub chat_template: *const c_char,
    pub tensor_parallel: i32,
    pub expert_parallel: i32,
    pub pipeline_parallel: i32,
    pub rank_timeout_ms: i32,
}
const _: () = assert!(core::mem::size_of::<minim_model_params>() == 200);
impl Default for minim_model_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 200, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_model_info {
    pub size: u32,
    pub n_layer: i32,
    pub hidden: i64,
    pub n_head: i32,
    pub n_head_kv: i32,
    pub head_dim: i32,
    pub rotary_dim: i32,
    pub n_expert: i32,
    pub n_expert_used: i32,
    pub expert_ff: i64,
    pub n_vocab: i64,
    pub n_context_train: i64,
    pub n_parameters: i64,
    pub weight_bytes: u64,
    pub kv_token_bytes_f16: u64,
    pub rope_theta: f64,
    pub name: *const c_char,
    pub backend: *const c_char,
    pub placement: *const c_char,
    pub process: i32,
    pub n_processes: i32,
    pub n_ranks: i32,
    pub reserved: i32,
}
const _: () = assert!(core::mem::size_of::<minim_model_info>() == 136);
impl Default for minim_model_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 136, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_device_memory {
    pub size: u32,
    pub first_layer: i32,
    pub n_layer: i32,
    pub weights_mapped: i32,
    pub weight_bytes: u64,
    pub expert_bytes: u64,
    pub kv_bytes: u64,
    pub work_bytes: u64,
    pub free_bytes: u64,
    pub name: *const c_char,
    pub kept_bytes: u64,
    pub budget_bytes: u64,
    pub n_expert_layers: i64,
    pub token_in_bytes: u64,
    pub token_out_bytes: u64,
    pub locked_bytes: u64,
}
const _: () = assert!(core::mem::size_of::<minim_device_memory>() == 112);
impl Default for minim_device_memory {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 112, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_layer_devices {
    pub size: u32,
    pub device: i32,
    pub experts: i32,
}
const _: () = assert!(core::mem::size_of::<minim_layer_devices>() == 12);
impl Default for minim_layer_devices {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 12, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_expert_cache {
    pub size: u32,
    pub reserved: u32,
    pub n_places: i64,
    pub n_hits: i64,
    pub n_misses: i64,
    pub n_moves: i64,
    pub bytes: u64,
    pub moved_bytes: u64,
}
const _: () = assert!(core::mem::size_of::<minim_expert_cache>() == 56);
impl Default for minim_expert_cache {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 56, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_node_memory {
    pub size: u32,
    pub node: i32,
    pub n_threads: i32,
    pub n_threads_decode: i32,
    pub wanted_bytes: u64,
    pub weight_bytes: u64,
}
const _: () = assert!(core::mem::size_of::<minim_node_memory>() == 32);
impl Default for minim_node_memory {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_check_params {
    pub size: u32,
    pub flags: u32,
    pub quick: i32,
    pub wants_sums: i32,
    pub wants_answers: i32,
    pub machine: i32,
    pub sums: *const c_char,
    pub answers: *const c_char,
    pub reference: *const c_char,
    pub model: *const minim_model_params,
    pub progress: minim_progress_fn,
    pub progress_user_data: *mut c_void,
}
const _: () = assert!(core::mem::size_of::<minim_check_params>() == 72);
impl Default for minim_check_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 72, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_chat_params {
    pub size: u32,
    pub flags: u32,
    pub null_content: i32,
    pub reserved: i32,
    pub tools: *const c_char,
    pub kwargs: *const c_char,
    pub template_name: *const c_char,
    pub thinking_off: i32,
    pub continue_final_message: i32,
}
const _: () = assert!(core::mem::size_of::<minim_chat_params>() == 48);
impl Default for minim_chat_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 48, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_chat_markup {
    pub size: u32,
    pub format: i32,
    pub think_begin: *const c_char,
    pub think_end: *const c_char,
    pub call_begin: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_chat_markup>() == 32);
impl Default for minim_chat_markup {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_output_parser_params {
    pub size: u32,
    pub flags: u32,
    pub reasoning: i32,
    pub starts_in_content: i32,
    pub tools: *const c_char,
    pub format: i32,
    pub reserved: i32,
}
const _: () = assert!(core::mem::size_of::<minim_output_parser_params>() == 32);
impl Default for minim_output_parser_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_output_delta {
    pub size: u32,
    pub kind: i32,
    pub index: i32,
    pub reserved: i32,
    pub name: *const c_char,
    pub name_length: usize,
    pub text: *const c_char,
    pub length: usize,
}
const _: () = assert!(core::mem::size_of::<minim_output_delta>() == 48);
impl Default for minim_output_delta {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 48, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_output_info {
    pub size: u32,
    pub finish_reason: i32,
    pub content: *const c_char,
    pub content_length: usize,
    pub reasoning: *const c_char,
    pub reasoning_length: usize,
    pub n_tool_calls: usize,
}
const _: () = assert!(core::mem::size_of::<minim_output_info>() == 48);
impl Default for minim_output_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 48, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_tool_call {
    pub size: u32,
    pub reserved: i32,
    pub name: *const c_char,
    pub name_length: usize,
    pub arguments: *const c_char,
    pub arguments_length: usize,
}
const _: () = assert!(core::mem::size_of::<minim_tool_call>() == 40);
impl Default for minim_tool_call {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 40, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_importance_params {
    pub size: u32,
    pub flags: u32,
    pub dataset: *const c_char,
    pub chunk_size: i32,
    pub process_output: i32,
    pub text_hash: u64,
}
const _: () = assert!(core::mem::size_of::<minim_importance_params>() == 32);
impl Default for minim_importance_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_constraint_params {
    pub size: u32,
    pub flags: u32,
    pub starts_after: *const c_char,
    pub calls_are_optional: i32,
    pub relax: i32,
    pub may_reason: i32,
    pub reserved: i32,
}
const _: () = assert!(core::mem::size_of::<minim_constraint_params>() == 32);
impl Default for minim_constraint_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_option_info {
    pub size: u32,
    pub r#type: i32,
    pub minimum: f64,
    pub maximum: f64,
    pub default_value: f64,
    pub name: *const c_char,
    pub help: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_option_info>() == 48);
impl Default for minim_option_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 48, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_generate_result {
    pub size: u32,
    pub finish: i32,
    pub stop_token: i32,
    pub reserved: u32,
    pub n_prompt: u64,
    pub n_generated: u64,
    pub prompt_us: u64,
    pub generate_us: u64,
    pub seed: u64,
    pub stop_text: i32,
    pub reserved2: u32,
    pub n_reasoning: u64,
    pub stop_logprob: f32,
    pub reserved3: u32,
    pub n_drafted: u64,
    pub n_drafts_accepted: u64,
}
const _: () = assert!(core::mem::size_of::<minim_generate_result>() == 96);
impl Default for minim_generate_result {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 96, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_engine_params {
    pub size: u32,
    pub flags: u32,
    pub kv_tokens: u64,
    pub k_format: i32,
    pub v_format: i32,
    pub n_requests: i32,
    pub n_batch: i32,
    pub n_prompt_rows: i32,
    pub forget_prefixes: i32,
    pub max_context: u64,
    pub fewer_requests: i32,
    pub warm_up: i32,
    pub host_cache_bytes: u64,
}
const _: () = assert!(core::mem::size_of::<minim_engine_params>() == 64);
impl Default for minim_engine_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 64, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_engine_state {
    pub size: u32,
    pub reserved: u32,
    pub n_waiting: u64,
    pub n_running: u64,
    pub n_steps: u64,
    pub n_evaluated: u64,
    pub n_preempted: u64,
    pub n_pages: u64,
    pub n_pages_held: u64,
    pub n_pages_cached: u64,
    pub max_context: u64,
    pub n_requests: u64,
    pub n_batch: u64,
    pub sizes: *const c_char,
    pub host_cache_bytes: u64,
    pub n_host_pages: u64,
    pub n_host_stored: u64,
    pub n_host_restored: u64,
}
const _: () = assert!(core::mem::size_of::<minim_engine_state>() == 136);
impl Default for minim_engine_state {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 136, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_request_params {
    pub size: u32,
    pub flags: u32,
    pub priority: i32,
    pub reserved: i32,
    pub timeout_ms: i64,
    pub notify: minim_notify_fn,
    pub notify_user_data: *mut c_void,
}
const _: () = assert!(core::mem::size_of::<minim_request_params>() == 40);
impl Default for minim_request_params {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 40, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_request_state {
    pub size: u32,
    pub finish: i32,
    pub stop_token: i32,
    pub reserved: u32,
    pub n_prompt: u64,
    pub n_cached: u64,
    pub n_generated: u64,
    pub n_preempted: u64,
    pub queue_us: u64,
    pub prompt_us: u64,
    pub generate_us: u64,
    pub seed: u64,
    pub stop_text: i32,
    pub reserved2: u32,
    pub n_reasoning: u64,
    pub n_prompt_done: u64,
    pub stop_logprob: f32,
    pub reserved3: u32,
    pub n_drafted: u64,
    pub n_drafts_accepted: u64,
}
const _: () = assert!(core::mem::size_of::<minim_request_state>() == 128);
impl Default for minim_request_state {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 128, ..zeros }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct minim_format_info {
    pub size: u32,
    pub gguf_type: i32,
    pub block_elems: i32,
    pub block_bytes: i32,
    pub row_header_bytes: i32,
    pub is_weight: i32,
    pub name: *const c_char,
}
const _: () = assert!(core::mem::size_of::<minim_format_info>() == 32);
impl Default for minim_format_info {
    /// All zero, which is the default of every field, and the size.
    fn default() -> Self {
        let zeros = unsafe { core::mem::zeroed::<Self>() };
        Self { size: 32, ..zeros }
    }
}

/// Structs, their sizes, and their fields' offsets, as C has them.
pub const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &[
    ("minim_error", 1072, &[("size", 0), ("status", 4), ("reason", 8), ("device", 12), ("os_code", 16), ("requested", 24), ("available", 32), ("offset", 40), ("message", 48)]),
    ("minim_session_params", 32, &[("size", 0), ("flags", 4), ("max_context", 8), ("k_format", 16), ("v_format", 20), ("n_batch", 24), ("n_ubatch", 28)]),
    ("minim_token_probability", 8, &[("id", 0), ("logprob", 4)]),
    ("minim_token", 48, &[("size", 0), ("id", 4), ("text", 8), ("text_length", 16), ("logprob", 24), ("n_top", 28), ("top", 32), ("prompt_rank", 40), ("reserved", 44)]),
    ("minim_runtime_params", 64, &[("size", 0), ("flags", 4), ("n_threads", 8), ("log_level", 12), ("log", 16), ("log_user_data", 24), ("n_threads_decode", 32), ("pin_threads", 36), ("parallel_for", 40), ("parallel_for_user_data", 48), ("numa", 56), ("reserved", 60)]),
    ("minim_recommended_sampling", 56, &[("size", 0), ("top_k", 4), ("temperature", 8), ("top_p", 16), ("min_p", 24), ("repetition_penalty", 32), ("penalty_last_n", 40), ("reserved", 44), ("source", 48)]),
    ("minim_tensor_info", 96, &[("size", 0), ("n_dims", 4), ("dims", 8), ("bytes", 72), ("name", 80), ("format", 88)]),
    ("minim_device_info", 56, &[("size", 0), ("usable", 4), ("memory_bytes", 8), ("free_bytes", 16), ("name", 24), ("description", 32), ("reason", 40), ("unified", 48), ("reserved", 52)]),
    ("minim_plan_params", 128, &[("size", 0), ("flags", 4), ("devices", 8), ("n_devices", 16), ("host", 24), ("n_context", 32), ("n_sequences", 40), ("n_ubatch", 44), ("k_format", 48), ("v_format", 52), ("overrides", 56), ("split", 64), ("n_split", 72), ("n_device_layers", 80), ("for_engine", 84), ("n_host_experts", 88), ("expert_cache_bytes", 96), ("tensor_parallel", 104), ("expert_parallel", 108), ("pipeline_parallel", 112), ("reserved", 116), ("link", 120)]),
    ("minim_convert_progress", 56, &[("size", 0), ("reserved", 4), ("done_bytes", 8), ("total_bytes", 16), ("n_done", 24), ("n_tensors", 32), ("tensor", 40), ("result", 48)]),
    ("minim_convert_params", 272, &[("size", 0), ("flags", 4), ("recipe", 8), ("matrix_type", 16), ("rules", 24), ("n_rules", 32), ("output_type", 40), ("embedding_type", 48), ("keep_output", 56), ("pure", 60), ("allow_requantize", 64), ("without_importance", 68), ("imatrix", 72), ("include_weights", 80), ("n_include_weights", 88), ("exclude_weights", 96), ("n_exclude_weights", 104), ("effort", 112), ("no_hashes", 116), ("name", 120), ("unset", 128), ("n_unset", 136), ("set", 144), ("n_set", 152), ("set_text", 160), ("n_set_text", 168), ("part_bytes", 176), ("part_tensors", 184), ("first_part_empty", 192), ("keep_parts", 196), ("dry_run", 200), ("overwrite", 204), ("restart", 208), ("no_verify", 212), ("memory_bytes", 216), ("progress", 224), ("progress_user_data", 232), ("layout", 240), ("keep_experts", 248), ("reuse", 256), ("container", 264)]),
    ("minim_model_params", 200, &[("size", 0), ("flags", 4), ("backend", 8), ("residence", 16), ("engine_tokenizer", 20), ("progress", 24), ("progress_user_data", 32), ("devices", 40), ("split", 48), ("n_split", 56), ("n_device_layers", 64), ("allow_cpu", 68), ("budgets", 72), ("n_budgets", 80), ("overrides", 88), ("n_host_experts", 96), ("fit_context", 104), ("lock", 112), ("prefault", 116), ("deterministic", 120), ("expand", 124), ("packed_file", 128), ("expert_cache_bytes", 136), ("expert_moves", 144), ("fit_k_format", 148), ("fit_v_format", 152), ("fit_n_ubatch", 156), ("expert_profile", 160), ("fit_requests", 168), ("chat_template", 176), ("tensor_parallel", 184), ("expert_parallel", 188), ("pipeline_parallel", 192), ("rank_timeout_ms", 196)]),
    ("minim_model_info", 136, &[("size", 0), ("n_layer", 4), ("hidden", 8), ("n_head", 16), ("n_head_kv", 20), ("head_dim", 24), ("rotary_dim", 28), ("n_expert", 32), ("n_expert_used", 36), ("expert_ff", 40), ("n_vocab", 48), ("n_context_train", 56), ("n_parameters", 64), ("weight_bytes", 72), ("kv_token_bytes_f16", 80), ("rope_theta", 88), ("name", 96), ("backend", 104), ("placement", 112), ("process", 120), ("n_processes", 124), ("n_ranks", 128), ("reserved", 132)]),
    ("minim_device_memory", 112, &[("size", 0), ("first_layer", 4), ("n_layer", 8), ("weights_mapped", 12), ("weight_bytes", 16), ("expert_bytes", 24), ("kv_bytes", 32), ("work_bytes", 40), ("free_bytes", 48), ("name", 56), ("kept_bytes", 64), ("budget_bytes", 72), ("n_expert_layers", 80), ("token_in_bytes", 88), ("token_out_bytes", 96), ("locked_bytes", 104)]),
    ("minim_layer_devices", 12, &[("size", 0), ("device", 4), ("experts", 8)]),
    ("minim_expert_cache", 56, &[("size", 0), ("reserved", 4), ("n_places", 8), ("n_hits", 16), ("n_misses", 24), ("n_moves", 32), ("bytes", 40), ("moved_bytes", 48)]),
    ("minim_node_memory", 32, &[("size", 0), ("node", 4), ("n_threads", 8), ("n_threads_decode", 12), ("wanted_bytes", 16), ("weight_bytes", 24)]),
    ("minim_check_params", 72, &[("size", 0), ("flags", 4), ("quick", 8), ("wants_sums", 12), ("wants_answers", 16), ("machine", 20), ("sums", 24), ("answers", 32), ("reference", 40), ("model", 48), ("progress", 56), ("progress_user_data", 64)]),
    ("minim_chat_params", 48, &[("size", 0), ("flags", 4), ("null_content", 8), ("reserved", 12), ("tools", 16), ("kwargs", 24), ("template_name", 32), ("thinking_off", 40), ("continue_final_message", 44)]),
    ("minim_chat_markup", 32, &[("size", 0), ("format", 4), ("think_begin", 8), ("think_end", 16), ("call_begin", 24)]),
    ("minim_output_parser_params", 32, &[("size", 0), ("flags", 4), ("reasoning", 8), ("starts_in_content", 12), ("tools", 16), ("format", 24), ("reserved", 28)]),
    ("minim_output_delta", 48, &[("size", 0), ("kind", 4), ("index", 8), ("reserved", 12), ("name", 16), ("name_length", 24), ("text", 32), ("length", 40)]),
    ("minim_output_info", 48, &[("size", 0), ("finish_reason", 4), ("content", 8), ("content_length", 16), ("reasoning", 24), ("reasoning_length", 32), ("n_tool_calls", 40)]),
    ("minim_tool_call", 40, &[("size", 0), ("reserved", 4), ("name", 8), ("name_length", 16), ("arguments", 24), ("arguments_length", 32)]),
    ("minim_importance_params", 32, &[("size", 0), ("flags", 4), ("dataset", 8), ("chunk_size", 16), ("process_output", 20), ("text_hash", 24)]),
    ("minim_constraint_params", 32, &[("size", 0), ("flags", 4), ("starts_after", 8), ("calls_are_optional", 16), ("relax", 20), ("may_reason", 24), ("reserved", 28)]),
    ("minim_option_info", 48, &[("size", 0), ("type", 4), ("minimum", 8), ("maximum", 16), ("default_value", 24), ("name", 32), ("help", 40)]),
    ("minim_generate_result", 96, &[("size", 0), ("finish", 4), ("stop_token", 8), ("reserved", 12), ("n_prompt", 16), ("n_generated", 24), ("prompt_us", 32), ("generate_us", 40), ("seed", 48), ("stop_text", 56), ("reserved2", 60), ("n_reasoning", 64), ("stop_logprob", 72), ("reserved3", 76), ("n_drafted", 80), ("n_drafts_accepted", 88)]),
    ("minim_engine_params", 64, &[("size", 0), ("flags", 4), ("kv_tokens", 8), ("k_format", 16), ("v_format", 20), ("n_requests", 24), ("n_batch", 28), ("n_prompt_rows", 32), ("forget_prefixes", 36), ("max_context", 40), ("fewer_requests", 48), ("warm_up", 52), ("host_cache_bytes", 56)]),
    ("minim_engine_state", 136, &[("size", 0), ("reserved", 4), ("n_waiting", 8), ("n_running", 16), ("n_steps", 24), ("n_evaluated", 32), ("n_preempted", 40), ("n_pages", 48), ("n_pages_held", 56), ("n_pages_cached", 64), ("max_context", 72), ("n_requests", 80), ("n_batch", 88), ("sizes", 96), ("host_cache_bytes", 104), ("n_host_pages", 112), ("n_host_stored", 120), ("n_host_restored", 128)]),
    ("minim_request_params", 40, &[("size", 0), ("flags", 4), ("priority", 8), ("reserved", 12), ("timeout_ms", 16), ("notify", 24), ("notify_user_data", 32)]),
    ("minim_request_state", 128, &[("size", 0), ("finish", 4), ("stop_token", 8), ("reserved", 12), ("n_prompt", 16), ("n_cached", 24), ("n_generated", 32), ("n_preempted", 40), ("queue_us", 48), ("prompt_us", 56), ("generate_us", 64), ("seed", 72), ("stop_text", 80), ("reserved2", 84), ("n_reasoning", 88), ("n_prompt_done", 96), ("stop_logprob", 104), ("reserved3", 108), ("n_drafted", 112), ("n_drafts_accepted", 120)]),
    ("minim_format_info", 32, &[("size", 0), ("gguf_type", 4), ("block_elems", 8), ("block_bytes", 12), ("row_header_bytes", 16), ("is_weight", 20), ("name", 24)]),
];

extern "C" {
    pub fn minim_runtime_create(params: *const minim_runtime_params, out: *mut *mut minim_runtime, err: *mut minim_error) -> minim_status;
    pub fn minim_runtime_free(runtime: *mut minim_runtime);
    pub fn minim_model_open(runtime: *mut minim_runtime, path: *const c_char, params: *const minim_model_params, cancel: *mut minim_cancel, out: *mut *mut minim_model, err: *mut minim_error) -> minim_status;
    pub fn minim_model_close(model: *mut minim_model);
    pub fn minim_session_create(model: *mut minim_model, params: *const minim_session_params, out: *mut *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_session_free(session: *mut minim_session);
    pub fn minim_sampling_create(out: *mut *mut minim_sampling, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_free(sampling: *mut minim_sampling);
    pub fn minim_sampling_set_i64(sampling: *mut minim_sampling, name: *const c_char, value: i64, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_set_f64(sampling: *mut minim_sampling, name: *const c_char, value: f64, err: *mut minim_error) -> minim_status;
    pub fn minim_tokens_data(tokens: *const minim_tokens) -> *const i32;
    pub fn minim_tokens_count(tokens: *const minim_tokens) -> usize;
    pub fn minim_tokens_free(tokens: *mut minim_tokens);
    pub fn minim_chat_tokenize(model: *const minim_model, messages: *const c_char, tools: *const c_char, kwargs: *const c_char, specials: i32, out: *mut *mut minim_tokens, err: *mut minim_error) -> minim_status;
    pub fn minim_generate(session: *mut minim_session, sampling: *const minim_sampling, prompt: *const i32, count: usize, on_token: minim_token_fn, user_data: *mut c_void, cancel: *mut minim_cancel, result: *mut minim_generate_result, err: *mut minim_error) -> minim_status;
    pub fn minim_version() -> *const c_char;
    pub fn minim_version_number() -> u32;
    pub fn minim_build_info() -> *const c_char;
    pub fn minim_has_feature(name: *const c_char) -> i32;
    pub fn minim_status_name(status: minim_status) -> *const c_char;
    pub fn minim_reason_name(reason: i32) -> *const c_char;
    pub fn minim_text_data(text: *const minim_text) -> *const c_char;
    pub fn minim_text_length(text: *const minim_text) -> usize;
    pub fn minim_text_free(text: *mut minim_text);
    pub fn minim_cancel_create(out: *mut *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_cancel_trigger(cancel: *mut minim_cancel);
    pub fn minim_cancel_reset(cancel: *mut minim_cancel);
    pub fn minim_cancel_free(cancel: *mut minim_cancel);
    pub fn minim_runtime_thread_count(runtime: *const minim_runtime) -> i32;
    pub fn minim_runtime_numa(runtime: *const minim_runtime) -> *const c_char;
    pub fn minim_runtime_cpu_level(runtime: *const minim_runtime) -> *const c_char;
    pub fn minim_checkpoint_open(runtime: *mut minim_runtime, path: *const c_char, out: *mut *mut minim_checkpoint, err: *mut minim_error) -> minim_status;
    pub fn minim_checkpoint_open_fd(runtime: *mut minim_runtime, descriptor: i32, out: *mut *mut minim_checkpoint, err: *mut minim_error) -> minim_status;
    pub fn minim_checkpoint_close(checkpoint: *mut minim_checkpoint);
    pub fn minim_checkpoint_file_count(checkpoint: *const minim_checkpoint) -> usize;
    pub fn minim_checkpoint_file_bytes(checkpoint: *const minim_checkpoint) -> u64;
    pub fn minim_checkpoint_metadata_count(checkpoint: *const minim_checkpoint) -> usize;
    pub fn minim_checkpoint_metadata_key(checkpoint: *const minim_checkpoint, index: usize) -> *const c_char;
    pub fn minim_checkpoint_metadata(checkpoint: *const minim_checkpoint, key: *const c_char, max_array: usize, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_checkpoint_recommended_sampling(checkpoint: *const minim_checkpoint, out: *mut minim_recommended_sampling, err: *mut minim_error) -> minim_status;
    pub fn minim_checkpoint_tensor_count(checkpoint: *const minim_checkpoint) -> usize;
    pub fn minim_checkpoint_tensor(checkpoint: *const minim_checkpoint, index: usize, out: *mut minim_tensor_info, err: *mut minim_error) -> minim_status;
    pub fn minim_devices_list(runtime: *mut minim_runtime, out: *mut *mut minim_devices, err: *mut minim_error) -> minim_status;
    pub fn minim_devices_free(devices: *mut minim_devices);
    pub fn minim_devices_count(devices: *const minim_devices) -> usize;
    pub fn minim_devices_get(devices: *const minim_devices, index: usize, out: *mut minim_device_info, err: *mut minim_error) -> minim_status;
    pub fn minim_plan_make(runtime: *mut minim_runtime, path: *const c_char, params: *const minim_plan_params, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_convert(runtime: *mut minim_runtime, source: *const c_char, output: *const c_char, params: *const minim_convert_params, cancel: *mut minim_cancel, report: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_model_follow(model: *mut minim_model, err: *mut minim_error) -> minim_status;
    pub fn minim_model_check(model: *const minim_model, err: *mut minim_error) -> minim_status;
    pub fn minim_model_open_fd(runtime: *mut minim_runtime, descriptor: i32, params: *const minim_model_params, cancel: *mut minim_cancel, out: *mut *mut minim_model, err: *mut minim_error) -> minim_status;
    pub fn minim_model_get_info(model: *const minim_model, out: *mut minim_model_info, err: *mut minim_error) -> minim_status;
    pub fn minim_model_device_count(model: *const minim_model) -> usize;
    pub fn minim_model_device_memory(model: *const minim_model, index: usize, out: *mut minim_device_memory, err: *mut minim_error) -> minim_status;
    pub fn minim_model_layer_devices(model: *const minim_model, layer: i32, out: *mut minim_layer_devices, err: *mut minim_error) -> minim_status;
    pub fn minim_model_expert_cache(model: *const minim_model, index: usize, out: *mut minim_expert_cache, err: *mut minim_error) -> minim_status;
    pub fn minim_model_save_expert_profile(model: *const minim_model, path: *const c_char, err: *mut minim_error) -> minim_status;
    pub fn minim_model_nodes(model: *const minim_model, out: *mut minim_node_memory, capacity: usize, count: *mut usize, err: *mut minim_error) -> minim_status;
    pub fn minim_model_checkpoint(model: *const minim_model, out: *mut *mut minim_checkpoint, err: *mut minim_error) -> minim_status;
    pub fn minim_check(runtime: *mut minim_runtime, path: *const c_char, params: *const minim_check_params, cancel: *mut minim_cancel, report: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_tokenize(model: *const minim_model, text: *const c_char, length: usize, specials: i32, out: *mut *mut minim_tokens, err: *mut minim_error) -> minim_status;
    pub fn minim_detokenize(model: *const minim_model, ids: *const i32, count: usize, skip_special: i32, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_token_attributes(model: *const minim_model, id: i32) -> i32;
    pub fn minim_token_text(model: *const minim_model, id: i32, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_decoder_create(model: *const minim_model, skip_special: i32, out: *mut *mut minim_decoder, err: *mut minim_error) -> minim_status;
    pub fn minim_decoder_push(decoder: *mut minim_decoder, id: i32, text: *mut *const c_char, length: *mut usize, err: *mut minim_error) -> minim_status;
    pub fn minim_decoder_finish(decoder: *mut minim_decoder, text: *mut *const c_char, length: *mut usize, err: *mut minim_error) -> minim_status;
    pub fn minim_decoder_free(decoder: *mut minim_decoder);
    pub fn minim_chat_render(model: *const minim_model, messages: *const c_char, tools: *const c_char, kwargs: *const c_char, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_chat_render_with(model: *const minim_model, messages: *const c_char, params: *const minim_chat_params, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_chat_tokenize_with(model: *const minim_model, messages: *const c_char, params: *const minim_chat_params, specials: i32, out: *mut *mut minim_tokens, err: *mut minim_error) -> minim_status;
    pub fn minim_chat_opens_thinking(model: *const minim_model, prompt: *const i32, count: usize, opens: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_chat_may_reason(model: *const minim_model, prompt: *const i32, count: usize, may_reason: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_chat_get_markup(model: *const minim_model, out: *mut minim_chat_markup, err: *mut minim_error) -> minim_status;
    pub fn minim_output_parser_create(params: *const minim_output_parser_params, out: *mut *mut minim_output_parser, err: *mut minim_error) -> minim_status;
    pub fn minim_output_parser_feed(parser: *mut minim_output_parser, text: *const c_char, length: usize, n_deltas: *mut usize, err: *mut minim_error) -> minim_status;
    pub fn minim_output_parser_finish(parser: *mut minim_output_parser, finish: i32, n_deltas: *mut usize, finish_reason: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_output_parser_delta(parser: *mut minim_output_parser, index: usize, out: *mut minim_output_delta, err: *mut minim_error) -> minim_status;
    pub fn minim_output_parser_free(parser: *mut minim_output_parser);
    pub fn minim_output_parse(params: *const minim_output_parser_params, text: *const c_char, length: usize, finish: i32, out: *mut *mut minim_output, err: *mut minim_error) -> minim_status;
    pub fn minim_output_get_info(output: *const minim_output, out: *mut minim_output_info, err: *mut minim_error) -> minim_status;
    pub fn minim_output_get_tool_call(output: *const minim_output, index: usize, out: *mut minim_tool_call, err: *mut minim_error) -> minim_status;
    pub fn minim_output_free(output: *mut minim_output);
    pub fn minim_session_token_count(session: *const minim_session) -> usize;
    pub fn minim_session_get_tokens(session: *mut minim_session, out: *mut *mut minim_tokens, err: *mut minim_error) -> minim_status;
    pub fn minim_session_context_size(session: *const minim_session) -> usize;
    pub fn minim_session_kv_bytes(session: *const minim_session) -> u64;
    pub fn minim_session_truncate(session: *mut minim_session, count: usize, err: *mut minim_error) -> minim_status;
    pub fn minim_session_fork(session: *mut minim_session, out: *mut *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_session_save(session: *mut minim_session, path: *const c_char, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_session_restore(model: *mut minim_model, path: *const c_char, params: *const minim_session_params, cancel: *mut minim_cancel, out: *mut *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_session_save_memory(session: *mut minim_session, data: *mut c_void, capacity: usize, size: *mut usize, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_session_restore_memory(model: *mut minim_model, data: *const c_void, size: usize, params: *const minim_session_params, cancel: *mut minim_cancel, out: *mut *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_session_save_fd(session: *mut minim_session, descriptor: i32, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_session_restore_fd(model: *mut minim_model, descriptor: i32, params: *const minim_session_params, cancel: *mut minim_cancel, out: *mut *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_session_eval(session: *mut minim_session, ids: *const i32, count: usize, all_logits: i32, logits: *mut f32, capacity: usize, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_create(model: *mut minim_model, params: *const minim_importance_params, out: *mut *mut minim_importance, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_free(importance: *mut minim_importance);
    pub fn minim_importance_attach(importance: *const minim_importance, session: *mut minim_session, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_merge(importance: *mut minim_importance, other: *const minim_importance, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_save(importance: *const minim_importance, path: *const c_char, format: i32, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_load(path: *const c_char, chunk_size: i32, out: *mut *mut minim_importance, err: *mut minim_error) -> minim_status;
    pub fn minim_importance_describe(importance: *const minim_importance, out: *mut *mut minim_text, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_schema(model: *mut minim_model, schema: *const c_char, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_regex(model: *mut minim_model, pattern: *const c_char, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_regex_n(model: *mut minim_model, pattern: *const c_char, length: usize, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_grammar(model: *mut minim_model, grammar: *const c_char, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_grammar_n(model: *mut minim_model, grammar: *const c_char, length: usize, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_choices(model: *mut minim_model, choices: *const *const c_char, count: usize, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_choices_n(model: *mut minim_model, choices: *const *const c_char, lengths: *const usize, count: usize, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_from_tools(model: *mut minim_model, tools: *const c_char, name: *const c_char, single: i32, params: *const minim_constraint_params, out: *mut *mut minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_matches(constraint: *const minim_constraint, text: *const c_char, length: usize, matches: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_constraint_free(constraint: *mut minim_constraint);
    pub fn minim_sampling_set_recommended(sampling: *mut minim_sampling, model: *const minim_model, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_set_dry_breakers(sampling: *mut minim_sampling, texts: *const *const c_char, lengths: *const usize, count: usize, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_add_stop(sampling: *mut minim_sampling, text: *const c_char, length: usize, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_add_stop_token(sampling: *mut minim_sampling, id: i32, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_add_logit_bias(sampling: *mut minim_sampling, id: i32, bias: f32, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_set_constraint(sampling: *mut minim_sampling, constraint: *const minim_constraint, err: *mut minim_error) -> minim_status;
    pub fn minim_sampling_option_count() -> usize;
    pub fn minim_sampling_option(index: usize, out: *mut minim_option_info, err: *mut minim_error) -> minim_status;
    pub fn minim_generate_begin(session: *mut minim_session, sampling: *const minim_sampling, prompt: *const i32, count: usize, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_generate_next(session: *mut minim_session, token: *mut minim_token, has_token: *mut i32, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_generate_state(session: *const minim_session, result: *mut minim_generate_result, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_create(model: *mut minim_model, params: *const minim_engine_params, out: *mut *mut minim_engine, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_free(engine: *mut minim_engine);
    pub fn minim_engine_drain(engine: *mut minim_engine, timeout_ms: i64, done: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_get_state(engine: *const minim_engine, out: *mut minim_engine_state, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_save_prefixes(engine: *mut minim_engine, path: *const c_char, cancel: *mut minim_cancel, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_load_prefixes(engine: *mut minim_engine, path: *const c_char, cancel: *mut minim_cancel, n_pages: *mut u64, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_save_prefix(engine: *mut minim_engine, tokens: *const i32, count: usize, path: *const c_char, cancel: *mut minim_cancel, n_tokens: *mut u64, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_load_prefix(engine: *mut minim_engine, path: *const c_char, cancel: *mut minim_cancel, out: *mut *mut minim_tokens, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_erase_prefix(engine: *mut minim_engine, tokens: *const i32, count: usize, n_tokens: *mut u64, err: *mut minim_error) -> minim_status;
    pub fn minim_notify_fd(user_data: *mut c_void);
    pub fn minim_engine_submit(engine: *mut minim_engine, sampling: *const minim_sampling, prompt: *const i32, count: usize, params: *const minim_request_params, out: *mut *mut minim_request, err: *mut minim_error) -> minim_status;
    pub fn minim_engine_submit_n(engine: *mut minim_engine, sampling: *const minim_sampling, prompt: *const i32, count: usize, params: *const minim_request_params, n_answers: usize, out: *mut *mut minim_request, err: *mut minim_error) -> minim_status;
    pub fn minim_request_next(request: *mut minim_request, timeout_ms: i64, token: *mut minim_token, next: *mut i32, err: *mut minim_error) -> minim_status;
    pub fn minim_request_cancel(request: *mut minim_request);
    pub fn minim_request_get_state(request: *const minim_request, out: *mut minim_request_state, err: *mut minim_error) -> minim_status;
    pub fn minim_request_free(request: *mut minim_request);
    pub fn minim_format_count() -> usize;
    pub fn minim_format_get_info(index: usize, out: *mut minim_format_info, err: *mut minim_error) -> minim_status;
    pub fn minim_format_decode(name: *const c_char, row: *const c_void, row_length: usize, count: usize, out: *mut f32, err: *mut minim_error) -> minim_status;
    pub fn minim_format_encode(name: *const c_char, x: *const f32, n_rows: usize, columns: usize, importance: *const f32, out: *mut c_void, capacity: usize, err: *mut minim_error) -> minim_status;
}
