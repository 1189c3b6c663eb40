#include "base/address_range.h"

#include <utility>

#include "support/helpers.h"

namespace minim::test {

TEST_CASE("a range of addresses has those between its ends and no others") {
    const AddressRange range(uint64_t{1} << 40, "a test");
    const std::byte* begin = range.begin();
    REQUIRE(begin != nullptr);
    CHECK(range.contains(begin));
    CHECK(range.contains(begin + (uint64_t{1} << 40) - 1));
    CHECK_FALSE(range.contains(begin + (uint64_t{1} << 40)));
    CHECK_FALSE(range.contains(begin - 1));
    CHECK_FALSE(range.contains(nullptr));
    const AddressRange other(4096, "a test");
    CHECK_FALSE(range.contains(other.begin()));
}

TEST_CASE("an empty range has no addresses, and a moved one takes them along") {
    CHECK_FALSE(AddressRange().contains(nullptr));
    AddressRange range(4096, "a test");
    const std::byte* begin = range.begin();
    AddressRange moved(std::move(range));
    CHECK(moved.contains(begin));
    AddressRange assigned;
    assigned = std::move(moved);
    CHECK(assigned.contains(begin));
    CHECK_FALSE(moved.contains(begin));
}

TEST_CASE("more addresses than there are is an error that names what they were for") {
    expect_error(Status::out_of_memory, "a test",
                 [] { const AddressRange range(uint64_t{1} << 60, "a test"); });
}

}  // namespace minim::test
