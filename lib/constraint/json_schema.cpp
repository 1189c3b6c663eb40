#include "constraint/json_schema.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/utf8.h"
#include "constraint/automaton.h"
#include "constraint/decimal.h"
#include "constraint/positions.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr size_t k_most_rules = 10'000;
constexpr int64_t k_most_prefix_items = 200;
constexpr size_t k_longest_name = 1000;  // beside names that are free

struct Format {
    std::string_view name;
    std::string_view pattern;
};

// Days that every month has, every month but February, and the long ones.
constexpr std::string_view k_date =
    R"([1-9]\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31))";
constexpr std::string_view k_time =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";

// As far as a short expression can say them, and never wider.
constexpr auto k_formats = std::to_array<Format>({
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email",
     R"([A-Za-z0-9_%+-]+(\.[A-Za-z0-9_%+-]+)*@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,})"},
    {"hostname", R"([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)"},
    {"ipv4", R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})"},
    {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
    {"uri", R"([A-Za-z][A-Za-z0-9+.-]*:(//)?([A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"},
    {"duration", R"(P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?)"
                 R"(|T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)))"},
});

std::optional<std::string> pattern_of_format(std::string_view name) {
    if (name == "date") return std::string(k_date);
    if (name == "time") return std::string(k_time);
    if (name == "date-time") return std::string(k_date) + "T" + std::string(k_time);
    for (const Format& format : k_formats)
        if (name == format.name) return std::string(format.pattern);
    return std::nullopt;  // an annotation
}

bool has_any(const Value& schema, std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return json::find(&schema, key) != nullptr; });
}

int64_t count_of(const Value& schema, const char* key, int64_t otherwise) {
    const Value* value = json::find(&schema, key);
    return value != nullptr ? json::to_int64(*value).value_or(otherwise) : otherwise;
}

std::optional<Bound> tighter(std::optional<Bound> a, std::optional<Bound> b, bool is_lower) {
    if (!a || !b) return a ? a : b;
    const int compared = compare(a->value, b->value);
    if (compared == 0) return a->is_included ? b : a;
    return (compared > 0) == is_lower ? a : b;
}

std::u32string code_points(std::string_view text) {
    std::u32string points;
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        points += step.code_point;
        text.remove_prefix(step.length);
    }
    return points;
}

}  // namespace

Part JsonSchema::value(const Value& schema, const std::string& where) {
    const std::string key = json::to_text(schema);
    const auto known = rules_.find(key);
    if (known != rules_.end()) return grammar_.call(known->second);
    if (rules_.size() == k_most_rules)
        fail(Status::unsupported, "{}: the schema has more than {} parts", where, k_most_rules);
    const RuleId rule = grammar_.declare(where);
    rules_.emplace(key, rule);
    undefined_.push_back({rule, schema, where});
    return grammar_.call(rule);
}

void JsonSchema::finish() {
    while (!undefined_.empty()) {
        const Undefined next = std::move(undefined_.back());
        undefined_.pop_back();
        std::vector<Part> parts;
        for (const Value& alternative : document_.alternatives(next.schema, next.where))
            parts.push_back(flat(alternative, next.where));
        grammar_.define(next.rule, grammar_.choice(std::move(parts)));
    }
}

Part JsonSchema::flat(const Value& schema, const std::string& where) {
    const std::vector<std::string> types = types_of(schema);
    std::vector<Part> parts;
    if (json::find(&schema, "enum") != nullptr) {
        for (const Value* value : listed_values(schema, where)) parts.push_back(text_.literal(*value));
        return grammar_.choice(std::move(parts));
    }
    if (schema.keys.empty()) return text_.value();
    for (const std::string& type : types) parts.push_back(of_type(type, schema, where));
    return grammar_.choice(std::move(parts));
}

// Asked of a grammar of everything else.
std::vector<const Value*> JsonSchema::listed_values(const Value& schema, const std::string& where) const {
    Value rest = object_value();
    for (size_t i = 0; i < schema.keys.size(); ++i)
        if (schema.keys[i] != "enum") set(rest, schema.keys[i], schema.items[i]);
    std::vector<const Value*> values;
    for (const Value& value : json::find(&schema, "enum")->items) values.push_back(&value);
    if (rest.keys.empty()) return values;

    Grammar grammar;
    JsonText text(grammar);
    SchemaWork& work = document_.work();
    JsonSchema writer(text, document_.root(), work);
    // A grammar that nothing fits is refused; a token is no byte of a value.
    const Part any = grammar.choice({writer.value(rest, where), grammar.token(0)});
    grammar.start_with(grammar.add_rule("listed", any));
    writer.finish();
    const Automaton automaton = make_automaton(grammar, 1);
    work.n_reached += automaton.n_reached;
    if (work.n_reached > Automaton::k_most_reached)
        fail(Status::unsupported, "{}: an 'enum' too many beside something else", where);
    Positions positions(automaton);
    const int32_t start = positions.start_of(automaton.start_rule);
    std::erase_if(values, [&](const Value* value) {
        const int32_t end = positions.read(start, json::to_text(*value));
        return end == Positions::k_dead || !positions.may_end(end);
    });
    return values;
}

// `properties` alone is meant for objects, though the standard lets every other value pass.
std::vector<std::string> JsonSchema::types_of(const Value& schema) {
    std::vector<std::string> types;
    if (const Value* type = json::find(&schema, "type")) {
        if (type->is_string()) return {type->text};
        for (const Value& each : type->items) types.push_back(each.text);
        return types;
    }
    if (has_any(schema, {"properties", "required", "additionalProperties", "propertyNames",
                         "patternProperties", "minProperties", "maxProperties"}))
        types.emplace_back("object");
    if (has_any(schema, {"items", "prefixItems", "minItems", "maxItems"})) types.emplace_back("array");
    if (has_any(schema, {"minLength", "maxLength", "pattern"})) types.emplace_back("string");
    if (has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}))
        types.emplace_back("number");
    if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
    return types;
}

Part JsonSchema::of_type(std::string_view type, const Value& schema, const std::string& where) {
    if (type == "null") return text_.null();
    if (type == "boolean") return text_.boolean();
    if (type == "string") return string(schema, where);
    if (type == "array") return array(schema, where);
    if (type == "object") return object(schema, where);
    return number(schema, type == "integer", where);
}

Part JsonSchema::number(const Value& schema, bool is_integer, const std::string& where) {
    const auto bound = [&](const char* key, bool is_included) -> std::optional<Bound> {
        const Value* value = json::find(&schema, key);
        if (value == nullptr) return std::nullopt;
        auto decimal = parse_decimal(value->text);
        if (!decimal) {
            fail(Status::unsupported, "{}: {} {} has more than {} digits", where, key, value->text,
                 k_most_digits);
        }
        return Bound{std::move(*decimal), is_included};
    };
    if (const Value* divisor = json::find(&schema, "multipleOf")) {
        const auto decimal = parse_decimal(divisor->text);
        const bool is_one = decimal && decimal->whole == "1" && decimal->fraction.empty();
        if (!is_one)
            fail(Status::unsupported, "{}: 'multipleOf' {} cannot be enforced", where, divisor->text);
        is_integer = true;
    }
    const auto low = tighter(bound("minimum", true), bound("exclusiveMinimum", false), true);
    const auto high = tighter(bound("maximum", true), bound("exclusiveMaximum", false), false);
    if (!low && !high) return is_integer ? text_.integer() : text_.number();
    return is_integer ? integer_between(grammar_, low, high) : number_between(grammar_, low, high);
}

Part JsonSchema::string(const Value& schema, const std::string& where) {
    const Value* format = json::find(&schema, "format");
    const bool is_restricted = has_any(schema, {"pattern", "minLength", "maxLength"}) ||
                               (format != nullptr && pattern_of_format(format->text));
    if (!is_restricted) return text_.string();
    const Spelling spelling = [this](const CodePoints& set) { return text_.character(set); };
    return text_.quoted(string_inside(schema, where, spelling, text_.any_character()));
}

Part JsonSchema::string_inside(const Value& schema, const std::string& where, const Spelling& spelling,
                               Part any) {
    const Value* pattern = json::find(&schema, "pattern");
    const Value* format = json::find(&schema, "format");
    const auto of_format = format != nullptr ? pattern_of_format(format->text) : std::nullopt;
    const bool has_lengths = has_any(schema, {"minLength", "maxLength"});
    const int n_kinds = (pattern != nullptr ? 1 : 0) + (of_format ? 1 : 0) + (has_lengths ? 1 : 0);
    if (n_kinds > 1) {
        fail(Status::unsupported, "{}: two of 'pattern', 'format' and lengths at once cannot be enforced",
             where);
    }
    if (pattern != nullptr) return regex(grammar_, pattern->text, Match::anywhere, spelling);
    if (of_format) return regex(grammar_, *of_format, Match::whole, spelling);
    const int64_t least = count_of(schema, "minLength", 0);
    const int64_t most = count_of(schema, "maxLength", -1);
    return most >= 0 && most < least ? grammar_.nothing() : grammar_.repeat(any, least, most);
}

Part JsonSchema::array(const Value& schema, const std::string& where) {
    const int64_t least = count_of(schema, "minItems", 0);
    int64_t most = count_of(schema, "maxItems", -1);
    const Value* prefix = json::find(&schema, "prefixItems");
    const Value* items = json::find(&schema, "items");
    const auto n_prefix = prefix != nullptr ? std::ssize(prefix->items) : 0;
    const bool has_further = prefix == nullptr || items != nullptr;
    if (!has_further) most = most < 0 ? n_prefix : std::min(most, n_prefix);
    if (most >= 0 && most < least) return grammar_.nothing();
    if (n_prefix > k_most_prefix_items) {
        fail(Status::unsupported, "{}: {} 'prefixItems'; at most {} can be kept", where, n_prefix,
             k_most_prefix_items);
    }

    const Part further = items != nullptr ? value(*items, where + "/items") : text_.value();
    if (n_prefix == 0) return text_.array(further, least, most);

    // From the end: what may stand behind the first i items, and whether there may be nothing.
    const Part next = grammar_.sequence({text_.comma(), further});
    Part rest = most == n_prefix ? grammar_.empty()
                                 : grammar_.repeat(next, std::max<int64_t>(least - n_prefix, 0),
                                                   most < 0 ? -1 : std::max<int64_t>(most - n_prefix, 0));
    for (int64_t i = n_prefix; i-- > 0;) {
        const Part item =
            value(prefix->items[static_cast<size_t>(i)], where + "/prefixItems/" + std::to_string(i));
        const bool is_allowed = most < 0 || i < most;
        const Part with = is_allowed
                              ? grammar_.sequence({i > 0 ? text_.comma() : grammar_.empty(), item, rest})
                              : grammar_.nothing();
        rest = i >= least ? grammar_.optional(with) : with;
    }
    return text_.list('[', rest, ']');
}

Part JsonSchema::object(const Value& schema, const std::string& where) {
    Value properties = object_value();
    if (const Value* given = json::find(&schema, "properties")) properties = *given;
    const Value* required = json::find(&schema, "required");
    const Value* additional = json::find(&schema, "additionalProperties");
    if (required != nullptr) {
        for (const Value& name : required->items) {
            if (json::find(&properties, name.text) == nullptr)
                set(properties, name.text, additional != nullptr ? *additional : boolean_schema(true));
        }
    }
    if (properties.keys.empty()) return free_object(schema, where);
    for (const char* key : {"propertyNames", "patternProperties"}) {
        if (json::find(&schema, key) != nullptr)
            fail(Status::unsupported, "{}: '{}' beside named properties cannot be enforced", where, key);
    }

    std::vector<Part> members;
    std::vector<bool> is_required;
    std::vector<std::string> names;
    for (size_t i = 0; i < properties.keys.size(); ++i) {
        const std::string& name = properties.keys[i];
        const bool must_be =
            required != nullptr &&
            std::ranges::any_of(required->items, [&](const Value& other) { return other.text == name; });
        names.push_back(name);
        const Value& property = properties.items[i];
        const bool never = property.is_boolean() && !property.boolean;
        if (never && !must_be) continue;
        members.push_back(text_.member(text_.literal(std::string_view(name)),
                                       value(property, format_text("{}/properties/{}", where, name))));
        is_required.push_back(must_be);
    }
    const int64_t n_required = std::ranges::count(is_required, true);
    const bool has_further = additional != nullptr && !(additional->is_boolean() && !additional->boolean);
    const int64_t most = count_of(schema, "maxProperties", -1);
    const bool counts_matter = count_of(schema, "minProperties", 0) > n_required ||
                               (most >= 0 && (has_further || most < std::ssize(members)));
    if (counts_matter)
        fail(Status::unsupported, "{}: counts of members beside named properties cannot be enforced", where);

    // Each member may be the first, as long as none before it is required; behind it come the later ones.
    std::vector<Part> rest;
    std::vector<Part> firsts;
    if (has_further) {
        const Part further =
            text_.member(key_other_than(names, where), value(*additional, where + "/additionalProperties"));
        rest = {grammar_.repeat(grammar_.sequence({text_.comma(), further}), 0, -1)};
        firsts.push_back(grammar_.sequence({further, rest[0]}));
    }
    firsts.push_back(grammar_.empty());
    for (size_t i = members.size(); i-- > 0;) {
        if (is_required[i]) firsts.clear();
        std::vector<Part> as_first = {members[i]};
        as_first.insert(as_first.end(), rest.begin(), rest.end());
        firsts.push_back(grammar_.sequence(std::move(as_first)));
        const Part as_later = grammar_.sequence({text_.comma(), members[i]});
        rest.insert(rest.begin(), is_required[i] ? as_later : grammar_.optional(as_later));
    }
    return text_.list('{', grammar_.choice(std::move(firsts)), '}');
}

// Members of any name, or such as propertyNames or one entry of patternProperties says.
Part JsonSchema::free_object(const Value& schema, const std::string& where) {
    const int64_t least = count_of(schema, "minProperties", 0);
    const int64_t most = count_of(schema, "maxProperties", -1);
    if (most >= 0 && most < least) return grammar_.nothing();
    const Value* additional = json::find(&schema, "additionalProperties");
    const Value* name_schema = json::find(&schema, "propertyNames");
    const Value* patterns = json::find(&schema, "patternProperties");
    Part key = text_.string();
    Part member_value = grammar_.nothing();
    if (patterns != nullptr && !patterns->keys.empty()) {
        if (patterns->keys.size() > 1 || name_schema != nullptr ||
            (additional != nullptr && !additional->is_boolean()))
            fail(Status::unsupported, "{}: more than one pattern for names cannot be enforced", where);
        Value of_key = object_value();
        set(of_key, "type", string_value("string"));
        set(of_key, "pattern", string_value(patterns->keys[0]));
        key = flat(of_key, where + "/patternProperties");
        member_value = value(patterns->items[0], where + "/patternProperties/" + patterns->keys[0]);
    } else {
        const bool is_closed = additional != nullptr && additional->is_boolean() && !additional->boolean;
        if (is_closed) return least > 0 ? grammar_.nothing() : text_.list('{', grammar_.empty(), '}');
        if (name_schema != nullptr) {
            Value is_string = object_value();
            set(is_string, "type", string_value("string"));
            Value both = array_value();
            both.items = {*name_schema, is_string};
            Value of_key = object_value();
            set(of_key, "allOf", std::move(both));
            key = value(of_key, where + "/propertyNames");
        }
        member_value =
            additional != nullptr ? value(*additional, where + "/additionalProperties") : text_.value();
    }
    return text_.object(text_.member(key, member_value), least, most);
}

// Written without escapes, so that there is one way to write a name.
Part JsonSchema::key_other_than(const std::vector<std::string>& names, const std::string& where) {
    const CodePoints plain = JsonText::to_be_escaped().complement();
    const RuleId rest = grammar_.add_rule("name", grammar_.repeat(utf8(grammar_, plain), 0, -1));
    std::vector<std::u32string> taken;
    for (const std::string& name : names) {
        if (name.size() > k_longest_name) {
            fail(Status::unsupported, "{}: a name of {} bytes beside additionalProperties", where,
                 name.size());
        }
        taken.push_back(code_points(name));
    }
    std::ranges::sort(taken);

    // What may follow the first `depth` characters of these names.
    const auto beyond = [&](auto self, std::span<const std::u32string> alike, size_t depth) -> Part {
        const bool is_name = alike[0].size() == depth;
        if (is_name) alike = alike.subspan(1);
        std::vector<Part> parts;
        CodePoints branches;
        while (!alike.empty()) {
            const char32_t c = alike[0][depth];
            const auto end = std::ranges::find_if(alike, [&](const auto& name) { return name[depth] != c; });
            const auto n = static_cast<size_t>(end - alike.begin());
            branches.add(c);
            if (plain.contains(c)) {
                parts.push_back(grammar_.sequence(
                    {utf8(grammar_, CodePoints().add(c)), self(self, alike.first(n), depth + 1)}));
            }
            alike = alike.subspan(n);
        }
        parts.push_back(grammar_.sequence({utf8(grammar_, plain.without(branches)), grammar_.call(rest)}));
        const Part more = grammar_.choice(std::move(parts));
        return is_name ? more : grammar_.optional(more);
    };
    return text_.quoted(beyond(beyond, taken, 0));
}

Grammar grammar_of_schema(const Value& schema) {
    Grammar grammar;
    JsonText text(grammar);
    SchemaWork work;
    JsonSchema writer(text, schema, work);
    grammar.start_with(writer.value(schema, "schema"));
    writer.finish();
    return grammar;
}

}  // namespace minim::constraint
