// SPDX-License-Identifier: Apache-2.0
#include "constraint/object_members.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "constraint/json_schema.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr size_t k_max_patterns = 4;
constexpr int64_t k_max_places = 100'000;  // of members and counts

bool is_false(const Value& schema) {
    return schema.is_boolean() && !schema.boolean;
}

class MemberList {
  public:
    MemberList(JsonSchema& json, Grammar& grammar, const Value& flat, const std::string& where,
               const MemberWriting& writing)
        : json_(json), grammar_(grammar), flat_(flat), where_(where), writing_(writing) {}

    Part write() {
        const int64_t least = count_in(flat_, "minProperties", 0, where_);
        const int64_t most = count_in(flat_, "maxProperties", -1, where_);
        if (most >= 0 && most < least) return grammar_.nothing();
        if (!find_named()) return grammar_.nothing();
        find_further(least);
        if (named_.empty()) return free_members(least, most);
        return counted_members(least, most);
    }

  private:
    struct Named {
        std::string name;
        Value schema;
        bool is_required;
    };

    const Value* keyword(const char* key) const { return json::find(&flat_, key); }

    // Returns false if a required member is not allowed.
    bool find_named() {
        const Value* properties = keyword("properties");
        const Value* required = keyword("required");
        const auto is_required = [&](const std::string& name) {
            return required != nullptr && std::ranges::any_of(required->items, [&](const Value& other) {
                       return other.text == name;
                   });
        };
        for (size_t i = 0; properties != nullptr && i < properties->keys.size(); ++i) {
            const std::string& name = properties->keys[i];
            if (!add_named(name, properties->items[i], is_required(name))) return false;
        }
        for (size_t i = 0; required != nullptr && i < required->items.size(); ++i) {
            const std::string& name = required->items[i].text;
            if (std::ranges::find(names_, name) != names_.end()) continue;
            const Value* further = keyword("additionalProperties");
            const bool has_pattern = !patterns_for(name).empty();
            if (!add_named(name, further != nullptr && !has_pattern ? *further : boolean_schema(true), true))
                return false;
        }
        return true;
    }

    bool add_named(const std::string& name, const Value& schema, bool is_required) {
        names_.push_back(name);
        Value all = schema;
        for (const Value* each : patterns_for(name)) all = all_of(all, *each);
        const Value* allowed_names = keyword("propertyNames");
        const bool is_allowed =
            allowed_names == nullptr ||
            json_.document().check().fits(string_value(name), *allowed_names, where_ + "/propertyNames");
        if (is_false(all) || !is_allowed) return !is_required;
        named_.push_back({name, std::move(all), is_required});
        return true;
    }

    std::vector<const Value*> patterns_for(const std::string& name) {
        std::vector<const Value*> schemas;
        const Value* patterns = keyword("patternProperties");
        for (size_t i = 0; patterns != nullptr && i < patterns->keys.size(); ++i)
            if (pattern(i).has(name)) schemas.push_back(&patterns->items[i]);
        return schemas;
    }

    const TextAutomaton& pattern(size_t i) {
        return json_.document().check().pattern(keyword("patternProperties")->keys[i],
                                                where_ + "/patternProperties");
    }

    void find_further(int64_t least) {
        const Value* additional = keyword("additionalProperties");
        const Value* patterns = keyword("patternProperties");
        const size_t n_patterns = patterns != nullptr ? patterns->keys.size() : 0;
        // Names that are not allowed, as in the alternative of `dependentRequired` without the name, leave the others open.
        const Value* properties = keyword("properties");
        const bool are_closed = writing_.empty_properties_close && properties != nullptr && names_.empty();
        const bool names_none = named_.empty() && !are_closed;
        const bool has_too_few = least > std::ssize(named_) && n_patterns == 0;
        const bool is_open =
            additional != nullptr ? !is_false(*additional) : (names_none && n_patterns == 0) || has_too_few;
        if (n_patterns > k_max_patterns)
            fail(Status::unsupported, "{}: more than {} 'patternProperties' cannot be enforced", where_,
                 k_max_patterns);
        if (is_open && n_patterns == 0) {
            const Value any = boolean_schema(true);
            add_further(nullptr, additional != nullptr ? *additional : any, "/additionalProperties");
            return;
        }
        // For each set of patterns: the names that fit exactly these.
        for (size_t chosen = is_open ? 0 : 1; chosen < size_t{1} << n_patterns; ++chosen) {
            Value schema = chosen == 0 && additional != nullptr ? *additional : boolean_schema(true);
            std::optional<TextAutomaton> names;
            for (size_t i = 0; i < n_patterns; ++i) {
                const bool fits = (chosen >> i & 1) != 0;
                if (fits) schema = all_of(schema, patterns->items[i]);
                const TextAutomaton these = fits ? pattern(i) : other_texts(pattern(i));
                names = names ? both(*names, these, where_) : these;
            }
            if (names && !is_false(schema)) add_further(&*names, schema, "/patternProperties");
        }
    }

    void add_further(const TextAutomaton* names, const Value& schema, const char* place) {
        std::optional<TextAutomaton> kept;
        if (names != nullptr) kept = *names;
        const auto keep = [&](const TextAutomaton& other) {
            kept = kept ? both(*kept, other, where_) : other;
        };
        if (!names_.empty()) keep(other_texts(listed_texts(names_)));
        if (const Value* allowed_names = keyword("propertyNames"))
            keep(json_.strings_of(*allowed_names, where_ + "/propertyNames"));
        if (kept && kept->is_empty()) return;
        if (kept) json_.document().work().count_states(kept->n_states(), where_);
        further_.push_back(writing_.further(kept ? &*kept : nullptr, schema, where_ + place));
    }

    Part with_separator(Part member) { return grammar_.sequence({writing_.separator, member}); }

    Part free_members(int64_t least, int64_t most) {
        const Part member = grammar_.choice(further_);
        if (most == 0) return grammar_.empty();
        const Part more = grammar_.repeat(with_separator(member), std::max<int64_t>(least - 1, 0),
                                          most < 0 ? -1 : most - 1);
        const Part members = grammar_.sequence({member, more});
        return least > 0 ? members : grammar_.optional(members);
    }

    // Returns a graph with a state for each place between named members and each count of members so far, up to the
    // count that makes a difference.
    Part counted_members(int64_t least, int64_t most) {
        const int64_t n_named = std::ssize(named_);
        const int64_t n_required = std::ranges::count_if(named_, &Named::is_required);
        if (least <= n_required) least = 0;
        if (most >= n_named && further_.empty()) most = -1;
        const int64_t n_counts = most >= 0 ? most : std::max<int64_t>(least, 1);
        if ((n_named + 1) * (n_counts + 1) > k_max_places)
            fail(Status::unsupported,
                 "{}: counts up to {} of members beside {} named ones cannot be enforced", where_, n_counts,
                 n_named);
        const auto state = [&](int64_t place, int64_t count) {
            return static_cast<int32_t>(place * (n_counts + 1) + count);
        };
        Grammar::Graph graph;
        graph.accepts.assign((n_named + 1) * (n_counts + 1), 0);
        std::vector<Part> members;
        for (const Named& each : named_) members.push_back(writing_.named(each.name, each.schema));
        for (int64_t count = 0; count <= n_counts; ++count) {
            const bool has_room = most < 0 || count < most;
            const int64_t next = most < 0 ? std::min(count + 1, n_counts) : count + 1;
            const auto add = [&](int64_t from, int64_t to, Part member) {
                graph.edges.push_back(
                    {state(from, count), state(to, next), count > 0 ? with_separator(member) : member});
            };
            for (int64_t place = 0; place < n_named; ++place) {
                if (has_room) add(place, place + 1, members[place]);
                if (!named_[place].is_required)
                    graph.edges.push_back({state(place, count), state(place + 1, count), grammar_.empty()});
            }
            if (has_room)
                for (const Part& each : further_) add(n_named, n_named, each);
            if (count >= least) graph.accepts[state(n_named, count)] = 1;
        }
        return grammar_.graph(std::move(graph));
    }

    JsonSchema& json_;
    Grammar& grammar_;
    const Value& flat_;
    const std::string& where_;
    const MemberWriting& writing_;
    std::vector<std::string> names_;  // names that have a schema of their own, even if it is `false`
    std::vector<Named> named_;        // members that are allowed
    std::vector<Part> further_;
};

}  // namespace

Part member_list(JsonSchema& json, Grammar& grammar, const Value& flat, const std::string& where,
                 const MemberWriting& writing) {
    return MemberList(json, grammar, flat, where, writing).write();
}

}  // namespace minim::constraint
