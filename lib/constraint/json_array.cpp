// SPDX-License-Identifier: Apache-2.0
#include "constraint/json_array.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "constraint/json_schema.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr int64_t k_max_prefix_items = 200;
constexpr size_t k_max_contains = 4;
constexpr size_t k_max_unique_values = 10;
constexpr size_t k_max_graph_states = 20'000;

class ArrayWriter {
  public:
    ArrayWriter(JsonSchema& json, Grammar& grammar, const Value& flat, const std::string& where,
                const ItemWriting& writing)
        : json_(json),
          grammar_(grammar),
          writing_(writing),
          where_(where),
          prefix_(json::find(&flat, "prefixItems")),
          items_(json::find(&flat, "items")),
          contains_(json::find(&flat, "contains")),
          is_unique_(json::find(&flat, "uniqueItems") != nullptr),
          n_prefix_(prefix_ != nullptr ? std::ssize(prefix_->items) : 0),
          least_(count_in(flat, "minItems", 0, where, k_max_counted)),
          most_(count_in(flat, "maxItems", -1, where, k_max_counted)) {}

    Part write() {
        if (items_ != nullptr && items_->is_boolean() && !items_->boolean) limit_to(n_prefix_);
        if (prefix_ != nullptr && items_ == nullptr && contains_ == nullptr && least_ <= n_prefix_)
            limit_to(n_prefix_);
        if (most_ >= 0 && most_ < least_) return grammar_.nothing();
        if (n_prefix_ > k_max_prefix_items) {
            fail(Status::unsupported, "{}: {} 'prefixItems'; at most {} can be kept", where_, n_prefix_,
                 k_max_prefix_items);
        }
        if (is_unique_ && most_ != 0 && most_ != 1) return unique_items();
        if (contains_ != nullptr) return containing();
        if (n_prefix_ == 0) return writing_.repeated(further(), least_, most_);
        return with_prefix();
    }

  private:
    void limit_to(int64_t n) { most_ = most_ < 0 ? n : std::min(most_, n); }

    Value schema_of_item(int64_t place) const {
        if (place < n_prefix_) return prefix_->items[place];
        return items_ != nullptr ? *items_ : boolean_schema(true);
    }
    std::string place_of_item(int64_t place) const {
        return place < n_prefix_ ? where_ + "/prefixItems/" + std::to_string(place) : where_ + "/items";
    }
    Part further() {
        return items_ != nullptr ? writing_.item(*items_, where_ + "/items") : writing_.any_item();
    }

    // Builds the list from its end: `rest` is what may follow the first i items, and may be empty if they are enough.
    Part with_prefix() {
        const Part next = grammar_.sequence({writing_.separator, further()});
        Part rest = most_ >= 0 && most_ <= n_prefix_
                        ? grammar_.empty()
                        : grammar_.repeat(next, std::max<int64_t>(least_ - n_prefix_, 0),
                                          most_ < 0 ? -1 : most_ - n_prefix_);
        for (int64_t i = n_prefix_; i-- > 0;) {
            const Part item = writing_.item(schema_of_item(i), place_of_item(i));
            const bool is_allowed = most_ < 0 || i < most_;
            const Part with =
                is_allowed ? grammar_.sequence({i > 0 ? writing_.separator : grammar_.empty(), item, rest})
                           : grammar_.nothing();
            rest = i >= least_ ? grammar_.optional(with) : with;
        }
        return writing_.whole(rest);
    }

    // Returns the state of a key in graph_, whose states are numbered in the order in which they are reached. A key
    // begins with the number of items so far.
    using Key = std::vector<int64_t>;
    int32_t state_of(const Key& key) {
        const auto [place, is_new] = states_.try_emplace(key, static_cast<int32_t>(keys_.size()));
        if (is_new) {
            if (keys_.size() == k_max_graph_states)
                fail(Status::unsupported, "{}: counts of items need more than {} states", where_,
                     k_max_graph_states);
            keys_.push_back(key);
            graph_.accepts.push_back(0);
        }
        return place->second;
    }
    // Returns the number of items after one more. It stops growing after the last place that differs from later ones.
    int64_t place_after(int64_t place) const {
        return most_ >= 0 ? place + 1 : std::min(place + 1, std::max({n_prefix_, least_, int64_t{1}}));
    }
    void add_item(size_t from, const Key& to, Part item) {
        const int32_t target = state_of(to);
        const Part part = keys_[from][0] > 0 ? grammar_.sequence({writing_.separator, item}) : item;
        graph_.edges.push_back({static_cast<int32_t>(from), target, part});
    }

    struct Contained {
        const Value* schema;
        int64_t least;
        int64_t most;  // -1: no end
    };

    // Returns arrays with 'contains'. A key counts the items so far that fit each 'contains', up to the count that
    // makes a difference.
    Part containing() {
        std::vector<Contained> contained;
        for (const Value& each : contains_->items) {
            contained.push_back({json::find(&each, "schema"),
                                 count_in(each, "least", 1, where_ + "/contains"),
                                 count_in(each, "most", -1, where_ + "/contains")});
        }
        if (contained.size() > k_max_contains)
            fail(Status::unsupported, "{}: more than {} 'contains' cannot be enforced", where_,
                 k_max_contains);
        state_of(Key(contained.size() + 1, 0));
        for (size_t state = 0; state < keys_.size(); ++state) {
            const Key key = keys_[state];
            bool has_enough = key[0] >= least_;
            for (size_t i = 0; i < contained.size(); ++i)
                has_enough = has_enough && key[i + 1] >= contained[i].least;
            graph_.accepts[state] = has_enough ? 1 : 0;
            if (most_ >= 0 && key[0] == most_) continue;
            for (size_t chosen = 0; chosen < size_t{1} << contained.size(); ++chosen)
                add_contained(state, key, contained, chosen);
        }
        return writing_.whole(grammar_.graph(std::move(graph_)));
    }

    // Adds an item that fits each chosen 'contains'. The item may also fit the others, unless they have an upper count.
    void add_contained(size_t state, const Key& key, const std::vector<Contained>& contained, size_t chosen) {
        Key to = key;
        to[0] = place_after(key[0]);
        Value schema = schema_of_item(key[0]);
        for (size_t i = 0; i < contained.size(); ++i) {
            const Contained& each = contained[i];
            if ((chosen >> i & 1) == 0) {
                if (each.most >= 0) schema = all_of(schema, one_member("not", *each.schema));
                continue;
            }
            if (each.most >= 0 && key[i + 1] == each.most) return;
            if (each.most < 0 && key[i + 1] == each.least) return;  // one more makes no difference
            ++to[i + 1];
            schema = all_of(schema, *each.schema);
        }
        add_item(state, to, writing_.item(schema, place_of_item(key[0]) + "/contains"));
    }

    // Returns all values of an item. Throws unsupported if they cannot be listed.
    std::vector<Value> values_of_item(int64_t place) {
        std::vector<Value> values;
        for (const Value& flat : json_.document().alternatives(schema_of_item(place), place_of_item(place))) {
            if (const Value* listed = json::find(&flat, "enum")) {
                values.insert(values.end(), listed->items.begin(), listed->items.end());
                continue;
            }
            for (const std::string& type : JsonSchema::types_of(flat)) {
                if ((type != "boolean" && type != "null") || json::find(&flat, "!values") != nullptr)
                    fail(Status::unsupported,
                         "{}: 'uniqueItems' cannot be enforced for items of type {}: only for listed values, "
                         "up to {}",
                         where_, type, k_max_unique_values);
                if (type == "null") values.emplace_back();
                if (type == "boolean")
                    values.insert(values.end(), {boolean_schema(true), boolean_schema(false)});
            }
        }
        return values;
    }

    // Returns arrays of unique items. A key has one bit for each value, set if the value has occurred.
    Part unique_items() {
        if (contains_ != nullptr)
            fail(Status::unsupported, "{}: 'uniqueItems' beside 'contains' cannot be enforced", where_);
        std::map<std::string, size_t> numbers;
        std::vector<std::map<size_t, Part>> items;  // by place: a value's number
        const bool has_further = most_ < 0 || most_ > n_prefix_;
        for (int64_t place = 0; place < n_prefix_ + (has_further ? 1 : 0); ++place) {
            items.emplace_back();
            for (const Value& value : values_of_item(place)) {
                const size_t number = numbers.emplace(canonical_text(value), numbers.size()).first->second;
                items.back().emplace(number, writing_.literal(value));
            }
        }
        if (numbers.size() > k_max_unique_values)
            fail(Status::unsupported, "{}: 'uniqueItems' for {} listed values; up to {} can be enforced",
                 where_, numbers.size(), k_max_unique_values);
        state_of({0, 0});
        for (size_t state = 0; state < keys_.size(); ++state) {
            const Key key = keys_[state];
            graph_.accepts[state] = key[0] >= least_ ? 1 : 0;
            if (most_ >= 0 && key[0] == most_) continue;
            const int64_t place = std::min(key[0], n_prefix_);
            for (const auto& [number, literal] : items[place]) {
                const int64_t bit = int64_t{1} << number;
                if ((key[1] & bit) == 0) add_item(state, {key[0] + 1, key[1] | bit}, literal);
            }
        }
        return writing_.whole(grammar_.graph(std::move(graph_)));
    }

    JsonSchema& json_;
    Grammar& grammar_;
    const ItemWriting& writing_;
    const std::string& where_;
    const Value* prefix_;
    const Value* items_;
    const Value* contains_;
    bool is_unique_;
    int64_t n_prefix_;
    int64_t least_;
    int64_t most_;

    Grammar::Graph graph_;
    std::vector<Key> keys_;  // by state
    std::map<Key, int32_t> states_;
};

}  // namespace

Part item_list(JsonSchema& json, Grammar& grammar, const Value& flat, const std::string& where,
               const ItemWriting& writing) {
    return ArrayWriter(json, grammar, flat, where, writing).write();
}

Part json_array(JsonSchema& json, JsonText& text, const Value& flat, const std::string& where) {
    const ItemWriting writing = {
        .item = [&](const Value& schema, const std::string& place) { return json.value(schema, place); },
        .any_item = [&] { return text.value(); },
        .literal = [&](const Value& value) { return text.literal(value); },
        .repeated = [&](Part item, int64_t least, int64_t most) { return text.array(item, least, most); },
        .whole = [&](Part items) { return text.list('[', items, ']'); },
        .separator = text.comma(),
    };
    return item_list(json, text.grammar(), flat, where, writing);
}

}  // namespace minim::constraint
