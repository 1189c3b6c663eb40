// SPDX-License-Identifier: Apache-2.0
//! Sessions in memory and through descriptors, and checkpoints that are open already.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use minim::{Checkpoint, Model, ModelOptions, Reason, Runtime, SessionOptions, Status};

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

/// A file without a name.
fn nameless(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("minim-{}-{name}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(path).expect("its name");
    file
}

#[test]
fn a_session_goes_on_from_its_bytes() {
    let model = open();
    let n_vocab = model.info().expect("info").n_vocab as usize;
    let mut session = model.session(SessionOptions::new().context(200)).expect("a session");
    let (mut expected, mut logits) = (vec![0.0; n_vocab], vec![0.0; n_vocab]);
    session.eval(&[5, 6, 7], &mut expected, None).expect("logits");
    let bytes = session.save_bytes(None).expect("bytes");
    session.eval(&[8], &mut expected, None).expect("logits");

    let mut restored = model.restore_bytes(&bytes, SessionOptions::new(), None).expect("a session");
    assert_eq!((restored.tokens().expect("tokens"), restored.context_size()), (vec![5, 6, 7], 200));
    restored.eval(&[8], &mut logits, None).expect("logits");
    assert_eq!(logits, expected);

    for (altered, reason) in [
        (bytes[..bytes.len() - 1].to_vec(), Reason::Truncated),
        (bytes[1..].to_vec(), Reason::Format),
        (Vec::new(), Reason::Format),
        ([&bytes[..], b"?"].concat(), Reason::Value),
    ] {
        let error = model.restore_bytes(&altered, SessionOptions::new(), None).err().expect("an error");
        assert_eq!((error.status, error.reason), (Status::Format, Some(reason)), "{error}");
    }
}

#[test]
fn sessions_follow_each_other_in_a_file() {
    let model = open();
    let mut file = nameless("sessions");
    file.write_all(b"head").expect("a write");
    for ids in [&[5, 6, 7][..], &[9][..]] {
        let mut session = model.session(SessionOptions::new().context(64)).expect("a session");
        session.eval(ids, &mut [], None).expect("an evaluation");
        session.save_fd(&file, None).expect("a save");
    }
    file.seek(SeekFrom::Start(4)).expect("a seek");
    for ids in [&[5, 6, 7][..], &[9][..]] {
        let restored = model.restore_fd(&file, SessionOptions::new(), None).expect("a session");
        assert_eq!(restored.tokens().expect("tokens"), ids);
    }
    let end = file.stream_position().expect("a position");
    assert_eq!(end, file.metadata().expect("metadata").len());
    let error = model.restore_fd(&file, SessionOptions::new(), None).err().expect("an error");
    assert_eq!((error.status, file.stream_position().expect("a position")), (Status::Format, end));
}

#[test]
fn a_session_goes_through_a_socket() {
    let model = open();
    let mut session = model.session(SessionOptions::new().context(64)).expect("a session");
    session.eval(&[5, 6, 7], &mut [], None).expect("an evaluation");
    let (from, mut to) = UnixStream::pair().expect("sockets");
    from.set_nonblocking(true).expect("a socket");
    let error = model.restore_fd(&to, SessionOptions::new(), None).err().expect("an error");
    assert_eq!(error.status, Status::Io);
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        to.read_to_end(&mut bytes).map(|_| bytes)
    });
    session.save_fd(&from, None).expect("a save");
    drop(from);
    let bytes = reader.join().expect("a thread").expect("bytes");
    assert_eq!(bytes, session.save_bytes(None).expect("bytes"));

    let (from, to) = UnixStream::pair().expect("sockets");
    drop(to);
    let error = session.save_fd(&from, None).err().expect("an error");
    assert_eq!((error.status, error.os_code), (Status::Io, 32)); // EPIPE
}

#[test]
fn a_checkpoint_is_opened_by_descriptor() {
    let mut file = File::open(model_path()).expect("the file");
    file.seek(SeekFrom::End(0)).expect("a seek");
    let checkpoint = Checkpoint::open_fd(&runtime(), &file).expect("a checkpoint");
    let model = Model::open_fd(&runtime(), &file, ModelOptions::new()).expect("the model");
    assert_eq!(file.stream_position().expect("a position"), file.metadata().expect("metadata").len());
    drop(file);
    assert_eq!(checkpoint.metadata("general.architecture", 0).expect("a value"), "minimax-m2");
    let tensors = checkpoint.tensors().expect("tensors");
    assert_eq!(tensors, model.checkpoint().expect("a checkpoint").tensors().expect("tensors"));
    assert!(tensors.iter().any(|tensor| tensor.name == "token_embd.weight" && tensor.dims.len() == 2));
    assert_eq!(checkpoint.file_bytes(), std::fs::metadata(model_path()).expect("metadata").len());

    let mut socket = UnixStream::pair().expect("sockets").0;
    let error = Model::open_fd(&runtime(), &socket, ModelOptions::new()).err().expect("an error");
    assert_eq!(error.status, Status::Io);
    socket.flush().expect("still open");
}
