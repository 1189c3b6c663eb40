// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/name_order.h"

#include <string>

#include "support/catch.h"

namespace minim::checkpoint {
namespace {

struct Item {
    std::string name;
};

TEST_CASE("items are found by name whatever their order") {
    const std::vector<Item> items = {{"c"}, {"a"}, {""}, {"b"}};
    const std::vector<uint32_t> order = order_by_name(items, &Item::name);
    CHECK(order == std::vector<uint32_t>{2, 1, 3, 0});
    CHECK(find_by_name(items, order, &Item::name, "b") == 3U);
    CHECK(find_by_name(items, order, &Item::name, "") == 2U);
    CHECK_FALSE(find_by_name(items, order, &Item::name, "bb"));
    CHECK_FALSE(find_by_name(items, order, &Item::name, "d"));
}

TEST_CASE("the first item that repeats an earlier name is reported") {
    const std::vector<Item> items = {{"z"}, {"b"}, {"z"}, {"a"}, {"a"}, {"z"}};
    CHECK(find_repeated(items, order_by_name(items, &Item::name), &Item::name) == 2U);
    const std::vector<Item> unique = {{"b"}, {"a"}};
    CHECK_FALSE(find_repeated(unique, order_by_name(unique, &Item::name), &Item::name));
    const std::vector<Item> none;
    CHECK_FALSE(find_repeated(none, order_by_name(none, &Item::name), &Item::name));
}

}  // namespace
}  // namespace minim::checkpoint
