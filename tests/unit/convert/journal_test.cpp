// SPDX-License-Identifier: Apache-2.0
#include "convert/journal.h"

#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/helpers.h"

namespace minim::convert {
namespace {

const Job k_job = {{"version", "1.2, encoders 3"}, {"source", "\"a.gguf 12 34\""}};

DoneTensor done(int64_t number) {
    return {number, 4096, 128, 0x0123456789ABCDEF, 0xFEDCBA9876543210, {0.5, 2.0, 0.25, 1e-300}, 1.5};
}

}  // namespace

TEST_CASE("a journal says what was written to it") {
    const test::TemporaryFolder folder;
    const JournalFile file(folder / "journal");
    CHECK(file.take_text().empty());
    file.begin(k_job);
    file.append(done_line(done(3)));
    JournalContent content = parse_journal(file.take_text());
    CHECK(content.job == k_job);
    CHECK_FALSE(content.is_renaming);
    REQUIRE(content.done.size() == 1);
    const DoneTensor& tensor = content.done.at(3);
    CHECK(tensor.offset == 4096);
    CHECK(tensor.bytes == 128);
    CHECK(tensor.hash == 0x0123456789ABCDEF);
    CHECK(tensor.source_hash == 0xFEDCBA9876543210);
    CHECK(tensor.errors.error == 0.5);
    CHECK(tensor.errors.square == 2.0);
    CHECK(tensor.errors.weighted_error == 0.25);
    CHECK(tensor.errors.weighted_square == 1e-300);
    CHECK(tensor.seconds == 1.5);
    file.append("rename\n");
    CHECK(parse_journal(file.take_text()).is_renaming);
}

TEST_CASE("a line that was being written when the process died does not count, at any length") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "journal";
    const std::string line = done_line(done(7));
    std::string whole;
    {
        const JournalFile file(path);
        file.begin(k_job);
        file.append(done_line(done(6)));
        whole = file.take_text();
    }
    for (size_t length = 0; length < line.size(); ++length) {
        test::write_text(path, whole + line.substr(0, length));
        const JournalFile file(path);
        CHECK(parse_journal(file.take_text()).done.size() == 1);
        file.append(done_line(done(8)));  // begins a line of its own
        const JournalContent content = parse_journal(file.take_text());
        CHECK(content.done.contains(6));
        CHECK(content.done.contains(8));
        CHECK(content.done.size() == 2);
    }
}

TEST_CASE("damaged lines and other files are no record") {
    CHECK(parse_journal("").job.empty());
    CHECK(parse_journal("minim-convert 2\njob a b\n").job.empty());
    const JournalContent content =
        parse_journal("minim-convert 1\njob a b\ndone 1 2 3\ndone x\n\ndone 1 2 3 4 5 6 7 8 9 g\n");
    CHECK(content.job == Job{{"a", "b"}});
    CHECK(content.done.empty());
}

TEST_CASE("another job is told by what differs first") {
    CHECK(difference(k_job, k_job).empty());
    const Job other = {{"version", "1.2, encoders 3"}, {"source", "\"b.gguf 12 34\""}};
    CHECK(difference(k_job, other) == "its source is \"a.gguf 12 34\", this one's \"b.gguf 12 34\"");
    CHECK(difference({}, other) == "it does not say its version");
}

TEST_CASE("only one process writes a journal at a time") {
    const test::TemporaryFolder folder;
    const JournalFile file(folder / "journal");
    const auto again = test::error_of([&] { const JournalFile second(folder / "journal"); });
    REQUIRE(again);
    CHECK(again->status() == Status::busy);
}

}  // namespace minim::convert
