// SPDX-License-Identifier: Apache-2.0
//! The calls of minim.h that a conversation does not need.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::thread;

use minim::{
    ChatOptions, ConstraintForm, ConstraintOptions, EngineOptions, Finish, FinishReason, Model, ModelOptions, Numa,
    OutputOptions, PlanOptions, Reasoning, RequestOptions, Runtime, Sampling, SessionOptions, Specials, Status,
};

const FRANCE: &str = r#"[{"role": "user", "content": "What is the capital of France?"}]"#;
const TOOLS: &str = r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]"#;

fn model_path() -> PathBuf {
    match std::env::var_os("MINIM_TEST_MODEL") {
        Some(path) => path.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/models/minim-tiny-q8_0.gguf"),
    }
}

fn runtime() -> Runtime {
    Runtime::builder().threads(1).build().expect("a runtime")
}

fn open() -> Model {
    Model::open(&runtime(), model_path(), ModelOptions::new()).expect("the model")
}

#[test]
fn one_prompt_has_several_answers() {
    let model = open();
    let engine = model.engine(EngineOptions::new().kv_tokens(4096).batch(64).prompt_rows(32)).expect("an engine");
    let prompt = [5, 6, 7];
    let sampling = Sampling::new().temperature(2.0).seed(7).max_tokens(12).integer("ignore_end", 1);
    let mut requests = engine.submit_n(&prompt, &sampling, RequestOptions::new(), 3).expect("requests");
    let answers: Vec<_> = requests.iter_mut().map(|request| request.answer().expect("an answer").ids).collect();
    for (i, ids) in answers.iter().enumerate() {
        let alone = sampling.clone().seed(7 + i as u64);
        let mut request = engine.submit(&prompt, &alone, RequestOptions::new()).expect("a request");
        assert_eq!(request.answer().expect("an answer").ids, *ids);
    }
    assert_ne!(answers[0], answers[1]);
    for count in [0, 1025, 1 << 40] {
        let error = engine.submit_n(&prompt, &sampling, RequestOptions::new(), count).err().expect("an error");
        assert_eq!(error.status, Status::Invalid);
    }
}

#[test]
fn recommended_sampling_is_that_of_the_checkpoint() {
    let model = open();
    let recommended = model.checkpoint().expect("a checkpoint").recommended_sampling().expect("values");
    assert!(recommended.top_k > 0 && recommended.temperature > 0.0);
    let prompt = model.tokenize_chat(FRANCE, None).expect("a prompt");
    let answer = |sampling: Sampling| {
        let mut session = model.session(SessionOptions::new().context(512)).expect("a session");
        let tokens = session.generate(&prompt, &sampling.seed(3).max_tokens(30).integer("ignore_end", 1), None);
        tokens.expect("a generation").map(|token| token.expect("a token").id).collect::<Vec<_>>()
    };
    let by_hand = Sampling::new()
        .temperature(recommended.temperature)
        .top_p(recommended.top_p)
        .top_k(recommended.top_k.into())
        .number("min_p", recommended.min_p)
        .number("repetition_penalty", recommended.repetition_penalty);
    assert_eq!(answer(Sampling::new().recommended()), answer(by_hand));
    assert_eq!(answer(Sampling::new().temperature(0.0).recommended()), answer(Sampling::new()));
    assert_ne!(answer(Sampling::new().recommended()), answer(Sampling::new()));
    let error = Sampling::new().number("dry_multiplier", 0.8).dry_breakers(&["\n", ""]);
    let mut session = model.session(SessionOptions::new().context(512)).expect("a session");
    assert_eq!(session.generate(&prompt, &error, None).err().map(|error| error.status), Some(Status::Invalid));
    let options = minim::sampling_options().expect("options");
    assert!(options.iter().any(|option| option.name == "top_p" && !option.is_integer && option.maximum == 1.0));
}

#[test]
fn a_model_says_where_it_is() {
    let model = open();
    let memory = model.memory().expect("memory");
    assert_eq!((memory.len(), memory[0].name.as_str(), memory[0].first_layer), (1, "cpu", 0));
    assert_eq!(memory[0].n_layer, model.info().expect("info").n_layer);
    assert!(memory[0].weight_bytes > memory[0].expert_bytes);
    assert_eq!(model.layer_devices(0).expect("devices"), (0, 0));
    assert_eq!(model.layer_devices(-1).err().map(|error| error.status), Some(Status::Invalid));
    assert_eq!(model.expert_caches().expect("caches")[0].n_places, 0);
    assert_eq!(model.save_expert_profile("/tmp/never").err().map(|error| error.status), Some(Status::Invalid));
    if let Err(error) = model.nodes() {
        assert_eq!(error.status, Status::Unsupported);
    }
    let options = PlanOptions::new(1000).devices(&["cuda:0=96GiB,1790GB/s"]).host("64GiB,50GB/s").sequences(2);
    let plan = minim::plan(&runtime(), model_path(), &options).expect("a plan");
    assert!(plan.contains("\"fits\"") && plan.contains("cuda:0"), "{plan}");
    let options = PlanOptions::new(1000).devices(&["cuda:0"]);
    assert_eq!(minim::plan(&runtime(), model_path(), &options).err().map(|error| error.status), Some(Status::Invalid));
}

#[test]
fn tokens_become_text_one_by_one() {
    let model = open();
    let text = "Größe: 5 €";
    let ids = model.tokenize(text, Specials::None).expect("ids");
    let mut decoder = model.decoder(true).expect("a decoder");
    let mut decoded: String = ids.iter().map(|&id| decoder.push(id).expect("a text")).collect();
    decoded += &decoder.finish().expect("a text");
    assert_eq!(decoded, text);
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| model.token_text(id).expect("bytes")).collect();
    assert_eq!(bytes, text.as_bytes());
    assert_eq!((model.token_attributes(ids[0]), model.token_attributes(-1)), (Some(0), None));
}

#[test]
fn chats_and_outputs_have_options() {
    let model = open();
    let options = ChatOptions { kwargs: Some(r#"{"add_generation_prompt": false}"#), ..Default::default() };
    let open_end = model.render_chat(FRANCE, None).expect("a text");
    let closed = model.render_chat_with(FRANCE, options).expect("a text");
    assert!(open_end.starts_with(&closed) && open_end.len() > closed.len());
    let ids = model.tokenize_chat_with(FRANCE, Specials::Template, ChatOptions::default()).expect("ids");
    assert_eq!(ids, model.tokenize_chat(FRANCE, None).expect("ids"));
    let off = ChatOptions { thinking_off: true, ..Default::default() };
    let closed = model.tokenize_chat_with(FRANCE, Specials::Template, off).expect("ids");
    for (prompt, opens) in [(&ids[..], true), (&closed, false), (&[], false)] {
        assert_eq!(model.chat_opens_thinking(prompt).expect("an answer"), opens);
        assert!(!model.chat_may_reason(prompt).expect("an answer")); // no prompt of M2 leaves it to the model
    }
    let missing = ChatOptions { template: Some("no such"), ..Default::default() };
    assert_eq!(model.render_chat_with(FRANCE, missing).err().map(|error| error.status), Some(Status::NotFound));

    let text = "thoughts</think>\n\nwords<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>";
    let options = OutputOptions { tools: Some(TOOLS), ..Default::default() };
    let output = minim::parse_output(text, Finish::Stop, options).expect("an output");
    assert_eq!((output.reasoning.as_deref(), output.content.as_deref()), (Some("thoughts"), Some("words")));
    assert_eq!((output.tool_calls[0].name.as_str(), output.tool_calls[0].arguments.as_str()), ("f", "{}"));
    assert_eq!(output.finish, Some(FinishReason::ToolCalls));
    let options = OutputOptions { reasoning: Reasoning::None, ..Default::default() };
    let output = minim::parse_output(text, Finish::Length, options).expect("an output");
    assert_eq!((output.content.as_deref(), output.reasoning), (Some(text), None));

    let tools = ConstraintForm::Tools { tools: TOOLS, name: None, single: true };
    let optional = ConstraintOptions { calls_are_optional: true, ..Default::default() };
    let constraint = model.constraint_with(tools, optional).expect("a constraint");
    assert!(constraint.matches("no call").expect("an answer"));
    assert!(!model.constraint(tools, None).expect("a constraint").matches("no call").expect("an answer"));
}

#[test]
fn the_arithmetic_runs_on_threads_of_the_host() {
    let count = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&count);
    let runtime = Runtime::builder()
        .threads(2)
        .numa(Numa::Off)
        .parallel_for(move |n_tasks, task| {
            counted.fetch_add(n_tasks, Ordering::Relaxed);
            let next = AtomicI64::new(0);
            let work = |slot| loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    index if index < n_tasks => task(index, slot),
                    _ => break,
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| work(1));
                work(0);
            });
        })
        .build()
        .expect("a runtime");
    assert_eq!((runtime.thread_count(), runtime.numa().as_str()), (2, "off"));
    assert!(!runtime.cpu_level().is_empty());
    let n_vocab = |model: &Model| model.info().expect("info").n_vocab as usize;
    let logits = |model: &Model| {
        let mut logits = vec![0.0; 3 * n_vocab(model)];
        let mut session = model.session(SessionOptions::new().context(64)).expect("a session");
        session.eval_all(&[5, 6, 7], &mut logits, None).expect("logits");
        logits
    };
    let model = Model::open(&runtime, model_path(), ModelOptions::new()).expect("the model");
    drop(runtime);
    assert_eq!(logits(&model), logits(&open()));
    assert!(count.load(Ordering::Relaxed) > 0);
}

#[test]
fn formats_and_features_are_listed() {
    let formats = minim::formats().expect("formats");
    let q8 = formats.iter().find(|format| format.name == "Q8_0").expect("Q8_0");
    assert_eq!((q8.block_elems, q8.block_bytes, q8.is_weight), (32, 34, true));
    let mut row = vec![0x00, 0x3C]; // 1.0
    row.extend((0..32).map(|i| i as u8));
    let decoded = minim::decode_format("Q8_0", &row, 32).expect("a row");
    assert_eq!(decoded, (0..32).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(minim::decode_format("Q8_0", &row, 1 << 40).err().map(|error| error.status), Some(Status::Invalid));
    let weights: Vec<f32> = (0..64).map(|i| i as f32 - 40.0).collect();
    let rows = minim::encode_format("Q8_0", &weights, 32, None).expect("two rows");
    assert_eq!(rows.len(), 2 * 34);
    let back = minim::decode_format("Q8_0", &rows[34..], 32).expect("the second row");
    assert!(back.iter().zip(&weights[32..]).all(|(a, b)| (a - b).abs() < 0.13));
    let importance = [1.0; 32];
    assert_eq!(minim::encode_format("Q8_0", &weights, 32, Some(&importance)).expect("two rows"), rows);
    let status = |result: minim::Result<Vec<u8>>| result.err().map(|error| error.status);
    assert_eq!(status(minim::encode_format("Q8_0", &weights, 32, Some(&importance[1..]))), Some(Status::Invalid));
    assert_eq!(status(minim::encode_format("Q4_K", &weights, 32, None)), Some(Status::Invalid));
    assert_eq!(status(minim::encode_format("IQ2_KT", &[0.0; 256], 256, None)), Some(Status::Unsupported));
    assert!(minim::has_feature("gguf") && !minim::has_feature("no such") && !minim::has_feature("\0"));
    assert!(minim::build_info().contains(&minim::version()));
}
