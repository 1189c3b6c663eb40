// SPDX-License-Identifier: Apache-2.0
#include "constraint/schema_references.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::constraint {
namespace {

using json::Value;

// Keywords whose value is a schema or a list of them, and those whose members' values are schemas.
constexpr auto k_schemas = std::to_array<std::string_view>(
    {"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "propertyNames",
     "items", "prefixItems", "contains", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
     "contentSchema"});
constexpr auto k_named_schemas = std::to_array<std::string_view>(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"});
// Values in which "$ref" is not a reference.
constexpr auto k_values = std::to_array<std::string_view>({"enum", "const", "default", "examples"});

template <size_t n>
bool is_among(const std::array<std::string_view, n>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

std::string pointer_token(std::string_view name) {
    std::string token = "/";
    for (const char c : name) {
        if (c == '~') {
            token += "~0";
        } else if (c == '/') {
            token += "~1";
        } else if (c == '%') {
            token += "%25";
        } else {
            token += c;
        }
    }
    return token;
}

std::string_view without_fragment(std::string_view uri) {
    return uri.substr(0, std::min(uri.find('#'), uri.size()));
}

size_t scheme_length(std::string_view uri) {
    const size_t colon = uri.find_first_of(":/?#");
    return colon != std::string_view::npos && uri[colon] == ':' ? colon + 1 : 0;
}

// Returns the path without dot segments: "/a/./b/../c" as "/a/c" (RFC 3986, 5.2.4).
std::string without_dots(std::string_view path) {
    std::vector<std::string_view> segments;
    for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        const std::string_view segment = path.substr(begin, end - begin);
        const bool is_last = end == path.size();
        if (segment == "..") {
            if (segments.size() > 1) segments.pop_back();
            if (is_last) segments.emplace_back();
        } else if (segment != ".") {
            segments.push_back(segment);
        } else if (is_last) {
            segments.emplace_back();
        }
        begin = end + 1;
    }
    std::string joined;
    for (size_t i = 0; i < segments.size(); ++i) joined.append(i > 0 ? "/" : "").append(segments[i]);
    return joined;
}

// Returns the URI that `reference` means in a document of URI `base` (RFC 3986, 5.2).
std::string resolved(std::string_view base, std::string_view reference) {
    base = without_fragment(base);
    if (scheme_length(reference) > 0 || base.empty()) return std::string(reference);
    if (reference.empty() || reference[0] == '#') return std::string(base).append(reference);
    const size_t scheme = scheme_length(base);
    if (reference.starts_with("//")) return std::string(base.substr(0, scheme)).append(reference);
    size_t path = scheme;
    if (base.substr(scheme).starts_with("//")) path = std::min(base.find('/', scheme + 2), base.size());
    const std::string_view front = base.substr(0, path);
    const std::string_view tail = reference.substr(without_fragment(reference).size());
    const std::string_view name = without_fragment(reference);
    if (name[0] == '/') return std::string(front).append(without_dots(name)).append(tail);
    const size_t slash = base.find_last_of('/');
    std::string_view folder =
        slash == std::string_view::npos || slash < path ? "" : base.substr(path, slash + 1 - path);
    if (folder.empty() && path > scheme) folder = "/";
    return std::string(front).append(without_dots(std::string(folder).append(name))).append(tail);
}

class References {
  public:
    explicit References(Value& root) : root_(root) {}

    void rewrite() {
        collect(root_, "", "", true);
        replace(root_, "");
    }

  private:
    // Collects the names of the places in `value`. `is_schema`: `value` may be a schema.
    void collect(const Value& value, std::string base, const std::string& pointer, bool is_schema) {
        if (is_schema && value.is_object()) {
            if (const Value* id = json::find(&value, "$id"); id != nullptr && id->is_string()) {
                if (!id->text.starts_with('#'))
                    base = std::string(without_fragment(resolved(base, id->text)));
                if (id->text.starts_with('#')) places_.emplace(resolved(base, id->text), pointer);
            }
            for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
                const Value* name = json::find(&value, keyword);
                if (name == nullptr || !name->is_string()) continue;
                places_.emplace(base + "#" + name->text, pointer);
                if (keyword == std::string_view("$dynamicAnchor")) ++n_dynamic_[name->text];
            }
            if (json::find(&value, "$recursiveAnchor") != nullptr) has_recursive_anchor_ = true;
        }
        if (pointer.empty() || (is_schema && json::find(&value, "$id") != nullptr))
            places_.emplace(base, pointer);
        for_each_inside(value, is_schema, [&](const Value& inside, const std::string& token, bool schema) {
            collect(inside, base, pointer + token, schema);
        });
    }

    void replace(Value& value, std::string base) {
        if (value.is_object()) {
            if (const Value* id = json::find(&value, "$id");
                id != nullptr && id->is_string() && !id->text.starts_with('#'))
                base = std::string(without_fragment(resolved(base, id->text)));
            for (size_t i = 0; i < value.keys.size(); ++i) {
                if (value.items[i].is_string()) replace_reference(value, i, base);
            }
        }
        for_each_inside(value, true, [&](Value& inside, const std::string&, bool) { replace(inside, base); });
    }

    void replace_reference(Value& schema, size_t member, const std::string& base) {
        std::string& key = schema.keys[member];
        std::string& text = schema.items[member].text;
        const std::string uri = resolved(base, text);
        if (key == "$dynamicRef") {
            const std::string name = uri.substr(without_fragment(uri).size());
            const auto n = n_dynamic_.find(name.empty() ? name : name.substr(1));
            if ((n != n_dynamic_.end() && n->second > 1) || json::find(&schema, "$ref") != nullptr) return;
            if (place_of_uri(uri).has_value()) key = "$ref";
        } else if (key == "$recursiveRef") {
            if (!has_recursive_anchor_ && json::find(&schema, "$ref") == nullptr) key = "$ref";
        }
        if (key != "$ref") return;
        if (const auto place = place_of_uri(uri)) text = "#" + *place;
    }

    std::optional<std::string> place_of_uri(const std::string& uri) const {
        const std::string document(without_fragment(uri));
        const std::string fragment = uri.substr(document.size());
        const bool is_pointer = fragment.size() <= 1 || fragment[1] == '/';
        const auto place = places_.find(is_pointer ? document : uri);
        if (place == places_.end()) return std::nullopt;
        return is_pointer && fragment.size() > 1 ? place->second + fragment.substr(1) : place->second;
    }

    template <typename V, typename Visit>
    static void for_each_inside(V& value, bool is_schema, Visit visit) {
        for (size_t i = 0; i < value.items.size(); ++i) {
            auto& inside = value.items[i];
            if (!value.is_object()) {
                visit(inside, pointer_token(std::to_string(i)), is_schema);
                continue;
            }
            const std::string& key = value.keys[i];
            const std::string token = pointer_token(key);
            if (is_schema && is_among(k_values, key)) continue;
            if (is_schema && is_among(k_named_schemas, key) && inside.is_object()) {
                for (size_t j = 0; j < inside.items.size(); ++j)
                    visit(inside.items[j], token + pointer_token(inside.keys[j]), true);
            } else {
                visit(inside, token, is_schema && is_among(k_schemas, key));
            }
        }
    }

    Value& root_;
    std::map<std::string, std::string> places_;  // by URI: the JSON pointer
    std::map<std::string, int> n_dynamic_;       // by name: how many places have it
    bool has_recursive_anchor_ = false;
};

}  // namespace

Value with_local_references(const Value& root) {
    Value local = root;
    References(local).rewrite();
    return local;
}

}  // namespace minim::constraint
