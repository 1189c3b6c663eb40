/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions saved to memory and through descriptors, and checkpoints that are opened by descriptor.
 * usage: descriptor_test MODEL SAFETENSORS_FOLDER GGUF_PART */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

enum { k_vocab = 2048 };

static const int32_t k_ids[] = {2018, 2003, 315, 198, 300};

static minim_session* session_of(minim_model* model, size_t count) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_session* session = NULL;
    params.max_context = 100;
    CHECK_OK(minim_session_create(model, &params, &session, &err));
    CHECK_OK(minim_session_eval(session, k_ids, count, 0, NULL, 0, NULL, &err));
    return session;
}

static unsigned char* saved(minim_session* session, size_t* size) {
    minim_error err = MINIM_ERROR_INIT;
    unsigned char* data;
    size_t written = 0;
    CHECK_OK(minim_session_save_memory(session, NULL, 0, size, NULL, &err));
    data = malloc(*size + 1);
    data[*size] = 0xA5;
    CHECK_OK(minim_session_save_memory(session, data, *size, &written, NULL, &err));
    CHECK(written == *size && data[*size] == 0xA5);
    return data;
}

/* The restored session goes on with the bits of the saved one. */
static void check_same(minim_session* session, minim_session* restored, size_t count) {
    minim_error err = MINIM_ERROR_INIT;
    float* logits = malloc(2 * k_vocab * sizeof(float));
    CHECK(minim_session_token_count(restored) == count && minim_session_context_size(restored) == 100);
    CHECK_OK(minim_session_eval(session, k_ids + 4, 1, 0, logits, k_vocab, NULL, &err));
    CHECK_OK(minim_session_eval(restored, k_ids + 4, 1, 0, logits + k_vocab, k_vocab, NULL, &err));
    CHECK(memcmp(logits, logits + k_vocab, k_vocab * sizeof(float)) == 0);
    CHECK_OK(minim_session_truncate(session, count, &err));
    free(logits);
}

static void check_refused(minim_model* model, const void* data, size_t size, int32_t reason) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session* restored = NULL;
    const minim_status status = minim_session_restore_memory(model, data, size, NULL, NULL, &restored, &err);
    CHECK(status == MINIM_E_FORMAT && err.reason == reason && restored == NULL);
}

static void test_memory(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_session *session = session_of(model, 4), *restored = NULL;
    minim_cancel* cancel = NULL;
    size_t size = 0, other = 77;
    unsigned char *data = saved(session, &size), *copy = malloc(size + 2);

    CHECK_FAILS(minim_session_save_memory(NULL, data, size, &other, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_save_memory(session, data, size, NULL, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_save_memory(session, NULL, size, &other, NULL, &err), MINIM_E_INVALID);
    CHECK(minim_session_save_memory(session, data, size - 1, &other, NULL, &err) == MINIM_E_INVALID);
    CHECK(err.requested == (int64_t)size && err.available == (int64_t)size - 1 && other == 77);
    reset_error(&err);
    CHECK_OK(minim_cancel_create(&cancel, &err));
    minim_cancel_trigger(cancel);
    CHECK_FAILS(minim_session_save_memory(session, copy, size, &other, cancel, &err), MINIM_E_CANCELLED);
    CHECK_FAILS(minim_session_restore_memory(model, data, size, NULL, cancel, &restored, &err),
                MINIM_E_CANCELLED);
    CHECK(other == 77 && minim_session_token_count(session) == 4);

    CHECK_FAILS(minim_session_restore_memory(model, NULL, size, NULL, NULL, &restored, &err),
                MINIM_E_INVALID);
    CHECK_FAILS(minim_session_restore_memory(model, data, size, NULL, NULL, NULL, &err), MINIM_E_INVALID);
    params.max_context = 3;
    CHECK_FAILS(minim_session_restore_memory(model, data, size, &params, NULL, &restored, &err),
                MINIM_E_INVALID);
    params.max_context = UINT64_C(1) << 31; /* more than there is memory for */
    params.k_format = params.v_format = MINIM_KV_F16;
    CHECK_FAILS(minim_session_restore_memory(model, data, size, &params, NULL, &restored, &err),
                MINIM_E_OUT_OF_MEMORY);

    /* The bytes may lie at any address, and are not needed after the call. */
    memcpy(copy + 1, data, size);
    CHECK_OK(minim_session_restore_memory(model, copy + 1, size, NULL, NULL, &restored, &err));
    memset(copy, 0, size + 2);
    check_same(session, restored, 4);
    minim_session_free(restored);

    for (size_t cut = 0; cut < size; cut += cut < 120 ? 1 : 499)
        check_refused(model, data, cut, cut < 8 ? MINIM_REASON_FORMAT : MINIM_REASON_TRUNCATED);
    check_refused(model, data, size + 1, MINIM_REASON_VALUE);
    for (size_t at = 16; at < size; at += at < 120 ? 1 : 499) {
        data[at] ^= 0x40;
        check_refused(model, data, size, MINIM_REASON_VALUE);
        data[at] ^= 0x40;
    }
    minim_cancel_free(cancel);
    minim_session_free(session);
    free(copy);
    free(data);
}

/* A file without a name. */
static int nameless(void) {
    char name[] = "descriptor_test.XXXXXX";
    const int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    return file;
}

static void test_files(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session *first = session_of(model, 4), *second = session_of(model, 2), *restored = NULL;
    size_t size = 0;
    unsigned char *data = saved(first, &size), *read_back = malloc(size);
    const int file = nameless();
    off_t end;

    CHECK_FAILS(minim_session_save_fd(first, -1, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_restore_fd(model, -1, NULL, NULL, &restored, &err), MINIM_E_INVALID);
    CHECK(write(file, "head", 4) == 4);
    CHECK_OK(minim_session_save_fd(first, file, NULL, &err));
    CHECK(lseek(file, 0, SEEK_CUR) == (off_t)(4 + size));
    CHECK(pread(file, read_back, size, 4) == (ssize_t)size && memcmp(data, read_back, size) == 0);
    CHECK_OK(minim_session_save_fd(second, file, NULL, &err));
    end = lseek(file, 0, SEEK_CUR);

    CHECK(lseek(file, 4, SEEK_SET) == 4);
    CHECK_OK(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err));
    check_same(first, restored, 4);
    minim_session_free(restored);
    CHECK_OK(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err));
    check_same(second, restored, 2);
    minim_session_free(restored);
    CHECK(lseek(file, 0, SEEK_CUR) == end);
    CHECK_FAILS(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err), MINIM_E_FORMAT);
    CHECK(lseek(file, end + 1000, SEEK_SET) == end + 1000);
    CHECK_FAILS(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err), MINIM_E_FORMAT);
    CHECK(lseek(file, 4, SEEK_SET) == 4 && ftruncate(file, (off_t)size) == 0);
    CHECK(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err) == MINIM_E_FORMAT);
    CHECK(err.reason == MINIM_REASON_TRUNCATED && lseek(file, 0, SEEK_CUR) == 4 && restored == NULL);
    reset_error(&err);
    close(file);
    CHECK(minim_session_save_fd(first, file, NULL, &err) == MINIM_E_IO && err.os_code == EBADF);
    CHECK(minim_session_restore_fd(model, file, NULL, NULL, &restored, &err) == MINIM_E_IO &&
          err.os_code == EBADF);
    free(read_back);
    free(data);
    minim_session_free(first);
    minim_session_free(second);
}

typedef struct reading {
    int from;
    unsigned char* data;
    size_t size;
} reading;

static void* read_slowly(void* argument) {
    reading* r = argument;
    ssize_t got;
    usleep(20000);
    while ((got = read(r->from, r->data + r->size, 4096)) > 0) r->size += (size_t)got;
    return NULL;
}

static void test_pipes(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session *session = session_of(model, 4), *restored = NULL;
    size_t size = 0;
    unsigned char* data = saved(session, &size);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(minim_session_restore_fd(model, ends[0], NULL, NULL, &restored, &err) == MINIM_E_IO &&
          err.os_code == ESPIPE);
    close(ends[0]);
    close(ends[1]);
    for (int is_nonblocking = 0; is_nonblocking < 2; ++is_nonblocking) {
        reading r = {0, malloc(size + 1), 0};
        pthread_t thread;
        CHECK(pipe(ends) == 0);
        if (is_nonblocking) CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
        r.from = ends[0];
        CHECK(pthread_create(&thread, NULL, read_slowly, &r) == 0);
        CHECK_OK(minim_session_save_fd(session, ends[1], NULL, &err));
        close(ends[1]);
        pthread_join(thread, NULL);
        CHECK(r.size == size && memcmp(r.data, data, size) == 0);
        close(ends[0]);
        free(r.data);
    }
    /* A pipe without a reader gives an error, not SIGPIPE, which would end this program. */
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    CHECK(minim_session_save_fd(session, ends[1], NULL, &err) == MINIM_E_IO && err.os_code == EPIPE);
    close(ends[1]);
    {
        sigset_t pending, blocked;
        CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGPIPE) == 0);
    }
    minim_session_free(session);
    free(data);
}

static void check_answers(minim_model* model, minim_model* opened) {
    minim_session *session = session_of(model, 4), *other = session_of(opened, 4);
    check_same(session, other, 4);
    minim_session_free(session);
    minim_session_free(other);
}

static void test_checkpoints(minim_runtime* runtime, minim_model* model, const char* path, const char* folder,
                             const char* part) {
    minim_error err = MINIM_ERROR_INIT;
    minim_model* opened = NULL;
    minim_checkpoint *checkpoint = NULL, *again = NULL;
    minim_recommended_sampling sampling = MINIM_RECOMMENDED_SAMPLING_INIT;
    char name[32];
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && lseek(file, 5, SEEK_SET) == 5);

    CHECK_FAILS(minim_checkpoint_open_fd(runtime, -1, &checkpoint, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_checkpoint_open_fd(NULL, file, &checkpoint, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_checkpoint_open_fd(runtime, file, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_open_fd(runtime, -7, NULL, NULL, &opened, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_open_fd(runtime, file, NULL, NULL, NULL, &err), MINIM_E_INVALID);

    /* The file is neither moved nor needed after the call. */
    CHECK_OK(minim_checkpoint_open_fd(runtime, file, &checkpoint, &err));
    CHECK_OK(minim_model_open_fd(runtime, file, NULL, NULL, &opened, &err));
    CHECK(lseek(file, 0, SEEK_CUR) == 5);
    snprintf(name, sizeof(name), "/dev/fd/%d", file);
    CHECK_OK(minim_checkpoint_open(runtime, name, &again, &err));
    close(file);
    CHECK(minim_checkpoint_tensor_count(checkpoint) == minim_checkpoint_tensor_count(again));
    CHECK(minim_checkpoint_file_count(checkpoint) == 1);
    check_answers(model, opened);
    minim_model_close(opened);
    minim_checkpoint_close(checkpoint);
    minim_checkpoint_close(again);
    CHECK(minim_checkpoint_open_fd(runtime, file, &checkpoint, &err) == MINIM_E_IO && err.os_code == EBADF);
    CHECK(checkpoint == NULL);
    reset_error(&err);

    /* A file that has no path any more and whose mode forbids opening it again. */
    file = nameless();
    {
        static char buffer[1 << 16];
        const int from = open(path, O_RDONLY);
        ssize_t got;
        while ((got = read(from, buffer, sizeof(buffer))) > 0) CHECK(write(file, buffer, (size_t)got) == got);
        close(from);
    }
    CHECK(fchmod(file, 0) == 0);
    CHECK_OK(minim_model_open_fd(runtime, file, NULL, NULL, &opened, &err));
    close(file);
    check_answers(model, opened);
    minim_model_close(opened);

    /* Files of a folder that are read later come from the same folder, even if the caller's descriptor number now names another
     * file. */
    file = open(folder, O_RDONLY | O_DIRECTORY);
    CHECK(file >= 0);
    CHECK_OK(minim_checkpoint_open_fd(runtime, file, &checkpoint, &err));
    CHECK_OK(minim_model_open_fd(runtime, file, NULL, NULL, &opened, &err));
    CHECK(dup2(STDERR_FILENO, file) == file);
    CHECK_OK(minim_checkpoint_recommended_sampling(checkpoint, &sampling, &err));
    close(file);
    minim_session_free(session_of(opened, 4));
    minim_model_close(opened);
    minim_checkpoint_close(checkpoint);

    /* The descriptor of one part does not lead to the other parts. */
    file = open(part, O_RDONLY);
    CHECK(file >= 0);
    CHECK(minim_checkpoint_open_fd(runtime, file, &checkpoint, &err) == MINIM_E_IO);
    CHECK(strstr(err.message, "part 1 of 3") != NULL);
    close(file);
    {
        int ends[2];
        CHECK(pipe(ends) == 0);
        CHECK(minim_checkpoint_open_fd(runtime, ends[0], &checkpoint, &err) == MINIM_E_IO);
        close(ends[0]);
        close(ends[1]);
    }
}

int main(int argc, char** argv) {
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
    if (argc != 4) return 2;
    params.n_threads = 1;
    CHECK_OK(minim_runtime_create(&params, &runtime, &err));
    CHECK_OK(minim_model_open(runtime, argv[1], NULL, NULL, &model, &err));
    test_memory(model);
    test_files(model);
    test_pipes(model);
    test_checkpoints(runtime, model, argv[1], argv[2], argv[3]);
    minim_model_close(model);
    minim_runtime_free(runtime);
    return 0;
}
