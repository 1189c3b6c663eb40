// SPDX-License-Identifier: Apache-2.0
//! The library through the safe crate, with the bundled model.

use std::future::Future;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use minim::{
    check, convert, Cancel, CheckOptions, ConstraintForm, ConvertOptions, Delta, EngineOptions, Finish, FinishReason, Importance,
    ImportanceFormat, ImportanceOptions, KvFormat, LogLevel, Model, ModelOptions, OutputParser, RequestOptions, Runtime,
    Sampling, SessionOptions, Specials, Status,
};

const FRANCE: &str = r#"[{"role": "user", "content": "What is the capital of France?"}]"#;

fn model_path() -> PathBuf {
    match std::env::var_os("MINIM_TEST_MODEL") {
        Some(path) => path.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/models/minim-tiny-q8_0.gguf"),
    }
}

fn open() -> Model {
    let runtime = Runtime::builder().threads(2).build().expect("a runtime");
    Model::open(&runtime, model_path(), ModelOptions::new()).expect("the model")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_conversation_is_answered() {
    let model = open();
    let info = model.info().expect("info");
    assert!(info.n_vocab > 0 && info.n_layer > 0 && info.n_parameters > 0);
    let prompt = model.tokenize_chat(FRANCE, None).expect("a prompt");
    assert!(model.render_chat(FRANCE, None).expect("a text").contains("France"));
    let mut session = model.session(SessionOptions::new().context(512).kv(KvFormat::F32)).expect("a session");
    drop(model); // the session keeps it
    let answer: String = session
        .generate(&prompt, &Sampling::new(), None)
        .expect("a generation")
        .map(|token| token.expect("a token").text)
        .collect();
    assert!(answer.contains("Paris"), "{answer}");
    let state = session.state().expect("the state");
    assert_eq!(state.finish, Some(FinishReason::End));
    assert_eq!(state.n_prompt, prompt.len() as u64);
    assert!(session.len() > prompt.len() as u64 && session.context_size() == 512);
}

#[test]
fn sessions_fork_truncate_save_and_come_back() {
    let model = open();
    let prompt = model.tokenize("The capital of France is", Specials::Safe).expect("ids");
    let mut session = model.session(SessionOptions::new().context(256)).expect("a session");
    let n_vocab = model.info().expect("info").n_vocab as usize;
    let mut logits = vec![0.0; n_vocab];
    session.eval(&prompt, &mut logits, None).expect("eval");
    assert_eq!(session.tokens().expect("tokens"), prompt);
    let path = std::env::temp_dir().join(format!("minim-rust-{}", std::process::id()));
    session.save(&path, None).expect("save");
    let mut restored = model.restore(&path, SessionOptions::new(), None).expect("restore");
    std::fs::remove_file(&path).expect("remove");
    let mut forked = session.fork().expect("fork");
    let (mut first, mut second) = (vec![0.0; n_vocab], vec![0.0; n_vocab]);
    restored.eval(&[5], &mut first, None).expect("eval");
    forked.eval(&[5], &mut second, None).expect("eval");
    assert_eq!(first, second);
    session.truncate(1).expect("truncate");
    assert_eq!(session.tokens().expect("tokens"), prompt[..1]);
    let moved = thread::spawn(move || session.truncate(0).map(|()| session.is_empty()));
    assert!(moved.join().expect("a thread").expect("truncate"));
}

#[test]
fn an_engine_gives_its_tokens_to_iterators_and_tasks_alike() {
    let model = open();
    let engine = model.engine(EngineOptions::new().kv_tokens(4096)).expect("an engine");
    let sampling = Sampling::new().max_tokens(20).integer("ignore_end", 1).temperature(1.0).seed(3).logprobs(2);
    let prompt = model.tokenize_chat(FRANCE, None).expect("a prompt");
    let submit = || engine.submit(&prompt, &sampling, RequestOptions::new().priority(1)).expect("a request");
    let mut expected = Vec::new();
    for token in submit() {
        let token = token.expect("a token");
        assert_eq!(token.top.len(), 2);
        expected.push(token.id);
    }
    assert_eq!(expected.len(), 20);

    let mut requests: Vec<_> = (0..4).map(|_| submit()).collect();
    for request in &mut requests {
        let ids = block_on(async {
            let mut ids = Vec::new();
            while let Some(token) = request.next_token().await {
                ids.push(token.expect("a token").id);
            }
            ids
        });
        assert_eq!(ids, expected);
        assert_eq!(request.state().expect("state").finish, Some(FinishReason::Length));
        assert!(request.next().is_none());
    }
    assert!(engine.state().expect("state").n_steps > 0);

    let mut endless =
        engine.submit(&prompt, &Sampling::new().integer("ignore_end", 1), RequestOptions::new()).expect("a request");
    endless.next().expect("a token").expect("a token");
    endless.cancel();
    let answer = endless.answer().expect("an answer");
    assert_eq!(answer.finish, Some(FinishReason::Stopped));
    let brief = RequestOptions::new().timeout(Duration::from_millis(1));
    let mut late = engine.submit(&prompt, &Sampling::new().integer("ignore_end", 1), brief).expect("a request");
    assert_eq!(late.answer().expect("an answer").finish, Some(FinishReason::Timeout));
    drop(submit());
    assert!(engine.drain(Duration::from_secs(60)).expect("drain"));
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a bad executor");
        }
    }
    let model = open();
    let engine = model.engine(EngineOptions::new().kv_tokens(1024)).expect("an engine");
    let sampling = Sampling::new().max_tokens(8).integer("ignore_end", 1);
    let mut request = engine.submit(&[1, 2, 3], &sampling, RequestOptions::new()).expect("a request");
    let waker = Waker::from(Arc::new(Panics));
    let _ = Pin::new(&mut request.next_token()).poll(&mut Context::from_waker(&waker));
    assert!(request.answer().expect("an answer").ids.len() >= 7);
}

#[test]
fn prompt_states_come_back_and_one_conversation_is_saved() {
    let model = open();
    let options = EngineOptions::new().kv_tokens(640).max_requests(1).host_cache(u64::MAX);
    let engine = model.engine(options).expect("an engine");
    let sampling = Sampling::new().max_tokens(3).integer("ignore_end", 1);
    let prompts: Vec<Vec<i32>> = (0..4).map(|first| (5 + first..305 + first).collect()).collect();
    let mut answers = Vec::new();
    for (round, prompt) in [0, 1].into_iter().flat_map(|round| prompts.iter().map(move |prompt| (round, prompt))) {
        let mut request = engine.submit(prompt, &sampling, RequestOptions::new()).expect("a request");
        answers.push(request.answer().expect("an answer").ids);
        assert_eq!(request.state().expect("the state").n_cached, 299 * round);
    }
    assert_eq!(answers[..4], answers[4..]);
    let state = engine.state().expect("the state");
    assert!(state.host_cache_bytes > 0 && state.n_host_pages > 0);
    assert!(state.n_host_stored > state.n_host_restored && state.n_host_restored >= 16);

    let path = std::env::temp_dir().join(format!("minim-rust-prefix-{}", std::process::id()));
    let conversation = [prompts[3].as_slice(), answers[7].as_slice()].concat();
    assert_eq!(engine.save_prefix(&prompts[3], &path, None).expect("a file"), 300);
    assert_eq!(engine.erase_prefix(&conversation).expect("erased"), 302);
    assert_eq!(engine.load_prefix(&path, None).expect("tokens"), prompts[3]);
    std::fs::remove_file(&path).expect("the file");
}

#[test]
fn a_model_is_converted_and_quantised() {
    let runtime = Runtime::builder().threads(2).build().expect("a runtime");
    let folder = std::env::temp_dir().join(format!("minim-rust-convert-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let copy = folder.join("copy.gguf");
    let plan = convert(&runtime, model_path(), &copy, ConvertOptions::new().dry_run()).expect("a plan");
    assert!(plan.contains("\"needs_importance\":[]") && !copy.exists());
    convert(&runtime, model_path(), &copy, ConvertOptions::new()).expect("a copy");
    assert_eq!(std::fs::read(&copy).expect("the copy"), std::fs::read(model_path()).expect("the model"));

    let small = folder.join("small.gguf");
    let mut finished = Vec::new();
    let options = ConvertOptions::new().recipe("Q4_0").pure().fast().rule("attn_v", "q8_0").name("small").progress(|now| {
        finished.extend(now.result.clone());
        ControlFlow::Continue(())
    });
    let report = convert(&runtime, &copy, &small, options).expect("a report");
    assert!(report.contains("\"resumed\":0") && finished.iter().any(|tensor| tensor.contains("rmse")));
    let model = Model::open(&runtime, &small, ModelOptions::new()).expect("the small model");
    assert!(!model.tokenize("x", Specials::Exact).expect("tokens").is_empty());

    let again = folder.join("again.gguf");
    let options = ConvertOptions::new().recipe("Q4_0").pure().fast().reuse(&small);
    let report = convert(&runtime, &copy, &again, options).expect("a report");
    assert!(report.contains("\"reused\":") && !report.contains("\"reused\":0,"));

    let written = folder.join("folder");
    let list = folder.join("kept.json");
    std::fs::write(&list, r#"{"layers": [[0, 1, 2], [1, 2, 3], [5, 6, 7]]}"#).expect("a list");
    let options = ConvertOptions::new().container("safetensors").layout("int8").keep_experts(&list);
    convert(&runtime, &copy, &written, options).expect("a folder");
    let index = std::fs::read_to_string(written.join("model.safetensors.index.json")).expect("an index");
    assert!(index.contains("experts.2.w1.weight_scale") && !index.contains("experts.3."));

    let stopped = folder.join("stopped.gguf");
    let options = ConvertOptions::new().recipe("Q8_0").pure().progress(|_| ControlFlow::Break(()));
    let error = convert(&runtime, &copy, &stopped, options).expect_err("a cancellation");
    assert_eq!(error.status, Status::Cancelled);
    let options = ConvertOptions::new().recipe("Q8_0").pure().progress(|_| panic!("a callback"));
    let result = catch_unwind(AssertUnwindSafe(|| convert(&runtime, &copy, &stopped, options)));
    assert!(result.is_err() && !stopped.exists());
    let error = convert(&runtime, &copy, &small, ConvertOptions::new()).expect_err("an output that exists");
    assert_eq!(error.status, Status::Invalid);
    std::fs::remove_dir_all(&folder).expect("the folder");
}

#[test]
fn importance_data_is_collected_saved_and_merged() {
    let model = open();
    let mut session = model.session(SessionOptions::new().context(64)).expect("a session");
    let options = ImportanceOptions::new().dataset("a.txt").chunk_size(20).process_output(true).text_hash(3);
    let importance = Importance::new(&model, options).expect("importance data");
    importance.attach(&mut session).expect("attached");
    let ids: Vec<i32> = (5..45).collect();
    session.eval(&ids, &mut [], None).expect("evaluated");
    Importance::detach(&mut session).expect("detached");
    session.eval(&ids[..5], &mut [], None).expect("evaluated");
    assert!(importance.describe().expect("a text").contains(r#""chunks": 2, "chunk_size": 20"#));
    let path = std::env::temp_dir().join(format!("minim-rust-importance-{}.dat", std::process::id()));
    importance.save(&path, ImportanceFormat::Auto).expect("a file");
    let unknown = Importance::load(&path, 0).expect("a file");
    assert!(unknown.describe().expect("a text").contains(r#""format": "dat""#));
    assert_eq!(importance.merge(&unknown).expect_err("no counts").status, Status::Invalid);
    let older = Importance::load(&path, 20).expect("a file");
    assert_eq!(older.attach(&mut session).expect_err("of a file").status, Status::Invalid);
    importance.merge(&older).expect("merged");
    importance.save(&path, ImportanceFormat::Gguf).expect("a file");
    assert!(Importance::load(&path, 0).expect("a file").describe().expect("a text").contains(r#""chunks": 4"#));
    std::fs::remove_file(&path).expect("the file");
}

#[test]
fn constraints_shape_answers() {
    let model = open();
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 7}}, "required": ["n"], "additionalProperties": false}"#;
    let constraint = model.constraint(ConstraintForm::Schema(schema), None).expect("a constraint");
    assert!(constraint.matches(r#"{"n":5}"#).expect("matches") && !constraint.matches(r#"{"n":8}"#).expect("matches"));
    let mut session = model.session(SessionOptions::new().context(256)).expect("a session");
    let answer: String = session
        .generate(&[1, 2, 3], &Sampling::new().temperature(1.0).seed(1).max_tokens(100).constraint(&constraint), None)
        .expect("a generation")
        .map(|token| token.expect("a token").text)
        .collect();
    assert!(constraint.matches(&answer).expect("matches"), "{answer}");
    let choices = model.constraint(ConstraintForm::Choices(&["yes", "no"]), None).expect("a constraint");
    assert!(choices.matches("no").expect("matches") && !choices.matches("maybe").expect("matches"));
    let digits = model.constraint(ConstraintForm::Regex("[0-9]+"), None).expect("a constraint");
    assert!(digits.matches("2026").expect("matches") && !digits.matches("").expect("matches"));
    let tools = r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]"#;
    assert!(model.constraint(ConstraintForm::Tools { tools, name: Some("f"), single: true }, None).is_ok());
    let error = model.constraint(ConstraintForm::Schema("{\"type\": 5}"), None).err().expect("an error");
    assert_eq!(error.status, Status::Invalid);
}

#[test]
fn output_is_taken_apart() {
    let mut parser = OutputParser::new(None, true).expect("a parser");
    let mut deltas = parser.feed("I think</think>\n\nTherefore").expect("deltas");
    let (last, has_calls) = parser.finish(Finish::Stop).expect("the end");
    deltas.extend(last);
    assert!(!has_calls);
    let of = |wanted: fn(&Delta) -> Option<&str>| deltas.iter().filter_map(wanted).collect::<String>();
    assert!(of(|delta| if let Delta::Reasoning(text) = delta { Some(text) } else { None }).contains("I think"));
    assert!(of(|delta| if let Delta::Content(text) = delta { Some(text) } else { None }).contains("Therefore"));
}

#[test]
fn errors_name_the_thing() {
    let runtime = Runtime::builder().threads(1).build().expect("a runtime");
    let error = Model::open(&runtime, "/nonexistent/m.gguf", ModelOptions::new()).err().expect("an error");
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().contains("/nonexistent/m.gguf"));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    let model = open();
    let error = model.tokenize_chat("[\0]", None).err().expect("an error");
    assert!(error.message.contains("messages holds a null character at byte 1"), "{error}");
    let mut session = model.session(SessionOptions::new().context(64)).expect("a session");
    let error = session.generate(&[-1], &Sampling::new(), None).err().expect("an error");
    assert_eq!(error.status, Status::Invalid);
    let error = session.generate(&[1], &Sampling::new().top_p(2.0), None).err().expect("an error");
    assert!(error.message.contains("top_p"), "{error}");
}

#[test]
fn opening_reports_its_progress_and_can_be_ended() {
    let runtime = Runtime::builder().threads(1).build().expect("a runtime");
    let mut most = 0;
    let options = ModelOptions::new().progress(|done, total| {
        most = most.max(done);
        assert!(done <= total);
        ControlFlow::Continue(())
    });
    Model::open(&runtime, model_path(), options).expect("the model");
    assert!(most > 0);
    let ended = ModelOptions::new().progress(|_, _| ControlFlow::Break(()));
    assert_eq!(Model::open(&runtime, model_path(), ended).err().map(|error| error.status), Some(Status::Cancelled));
    let panics = ModelOptions::new().progress(|_, _| panic!("of the caller's"));
    let panic = catch_unwind(AssertUnwindSafe(|| Model::open(&runtime, model_path(), panics).is_ok())).expect_err("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the caller's"));
}

#[test]
fn a_log_outlives_its_runtime_and_may_panic() {
    let lines = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lines);
    let runtime = Runtime::builder()
        .threads(1)
        .log(LogLevel::Debug, move |_, line| {
            assert!(!line.is_empty());
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("of the log");
            }
        })
        .build()
        .expect("a runtime");
    let model = Model::open(&runtime, model_path(), ModelOptions::new()).expect("the model");
    drop(runtime);
    let before = lines.load(Ordering::Relaxed);
    assert!(before > 1);
    drop(model.session(SessionOptions::new().context(64)).expect("a session"));
    drop(model);
    assert_eq!(Arc::strong_count(&lines), 1);
}

#[test]
fn a_cancel_ends_a_long_prompt() {
    let model = open();
    let cancel = Cancel::new().expect("a cancel");
    let ids: Vec<i32> = (0..2000).map(|i| i % 1900 + 1).collect();
    let mut session = model.session(SessionOptions::new().context(4096)).expect("a session");
    cancel.trigger();
    let error = session.generate(&ids, &Sampling::new(), Some(&cancel)).err().expect("an error");
    assert_eq!(error.status, Status::Cancelled);
    cancel.reset();
    assert!(session.generate(&[1, 2], &Sampling::new().max_tokens(1), Some(&cancel)).is_ok());
}

#[test]
fn models_and_engines_are_shared_by_threads_and_sessions_move() {
    fn shared<T: Send + Sync>() {}
    fn moves<T: Send>() {}
    shared::<Model>();
    shared::<minim::Engine>();
    shared::<minim::Request>();
    shared::<minim::Constraint>();
    shared::<Cancel>();
    shared::<Runtime>();
    moves::<minim::Session>();
    moves::<OutputParser>();
    assert!(minim::devices().expect("devices").iter().any(|device| device.name == "cpu" && device.why_not.is_none()));
    let model = Arc::new(open());
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| seen.lock().expect("a lock").push(model.tokenize("Hello", Specials::Safe).expect("ids")));
        }
    });
    let seen = seen.into_inner().expect("a lock");
    assert!(seen.iter().all(|ids| *ids == seen[0]));
}

#[test]
fn a_checkpoint_is_checked() {
    let runtime = Runtime::builder().threads(2).build().expect("a runtime");
    let options = CheckOptions::new().quick().want_sums();
    let report = check(&runtime, model_path(), &options, None).expect("a report");
    assert!(report.starts_with("{\"faults\": [],"), "{report}");
    assert!(report.contains("\"sums\": \""), "{report}");
    let wrong = CheckOptions::new().quick().sums(&format!("{}  minim-tiny-q8_0.gguf", "0".repeat(64)));
    let report = check(&runtime, model_path(), &wrong, None).expect("a report");
    assert!(report.contains("\"class\": \"hash\""), "{report}");
    let cancel = Cancel::new().expect("a cancel");
    cancel.trigger();
    let error = check(&runtime, model_path(), &CheckOptions::new(), Some(&cancel)).err().expect("an error");
    assert_eq!(error.status, Status::Cancelled);
}
