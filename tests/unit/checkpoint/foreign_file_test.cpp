// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/foreign_file.h"

#include <string>

#include "checkpoint/gguf_header.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/text_file.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

constexpr const char* k_pointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:9f2c\nsize 4995001344\n";

// Returns the error of opening `text` as a file of that kind.
std::string gguf_error(std::string_view text) {
    const auto error = error_of([&] { read_gguf_header(ByteSource("x.gguf", bytes_of(text))); });
    return error && error->status() == Status::format ? error->what() : "";
}
std::string safetensors_error(std::string_view text) {
    const auto error =
        error_of([&] { read_safetensors_header(ByteSource("x.safetensors", bytes_of(text))); });
    return error && error->status() == Status::format ? error->what() : "";
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

struct Case {
    std::string_view text;
    std::string_view what;
};

TEST_CASE("files that a download left are named in every place of a checkpoint's file") {
    const TemporaryFolder folder;
    for (const Case& c : {
             Case{k_pointer, "Git LFS pointer"},
             Case{"\r\n  <!DOCTYPE HTML PUBLIC><html>", "web page"},
             Case{"<html lang=en><title>Sign in</title>", "web page"},
             Case{"\xEF\xBB\xBF<HTML>", "web page"},
             Case{"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML"},
             Case{"# xet version 0\nfilesize = 12\n", "Xet pointer"},
             Case{"/annex/objects/SHA256E-s12--ab.gguf\n", "git-annex pointer"},
         }) {
        CAPTURE(c.text);
        CHECK(contains(gguf_error(c.text), "x.gguf: not a GGUF file: it is a"));
        CHECK(contains(gguf_error(c.text), c.what));
        CHECK(contains(safetensors_error(c.text), "x.safetensors: not a safetensors file: it is a"));
        CHECK(contains(safetensors_error(c.text), c.what));
        const std::string path = folder / "config.json";
        test::write_bytes(path, bytes_of(c.text));
        const auto error = error_of([&] { read_text_file(path, 1000); });
        REQUIRE(error);
        CHECK(error->status() == Status::format);
        CHECK(contains(error->what(), "config.json: it is a"));
        CHECK(contains(error->what(), c.what));
    }
}

TEST_CASE("other formats and other texts are named") {
    using namespace std::string_view_literals;
    CHECK(contains(safetensors_error("GGUF\x03\0\0\0\1\0\0\0\0\0\0\0"sv), "it is a GGUF file"));
    CHECK(contains(safetensors_error("PK\x03\x04 and more of an archive"), "ZIP archive"));
    CHECK(contains(gguf_error("PK\x03\x04 and more of an archive"), "ZIP archive"));
    CHECK(contains(gguf_error("\x80\x02}q\0("sv), "pickle"));
    CHECK(contains(gguf_error("tjgg\x03\0\0\0"sv), "older GGML format"));
    CHECK(contains(gguf_error("Entry not found"), "it is a text, which begins with \"Entry not found\""));
    CHECK(contains(safetensors_error("Forbidden"), "it is a text, which begins with \"Forbidden\""));
    CHECK(contains(safetensors_error("Gone"), "it is a text"));
    CHECK(contains(gguf_error("\1\2\3\4\5\6"), "it begins with \"\\x01\\x02\\x03\\x04\""));
    CHECK(contains(gguf_error("{\"error\": \"gated\"}"), "it is a text"));
}

TEST_CASE("a header whose length looks like another format's magic is read") {
    const std::string padding(640 - 2, ' ');
    CHECK(read_safetensors_header(ByteSource("x", safetensors("{}" + padding, 0))).tensors.empty());
}

}  // namespace
}  // namespace minim::checkpoint::testing
