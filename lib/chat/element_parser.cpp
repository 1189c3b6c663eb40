// SPDX-License-Identifier: Apache-2.0
#include "chat/element_parser.h"

#include <utility>

#include "chat/markup.h"

namespace minim::chat {
namespace {

using Kind = ElementToken::Kind;
using Tags = ElementTags;

constexpr size_t k_max_depth = 100;  // of elements; deeper tags are left out

// The names of elements whose closing tags are also those of a call and a block.
constexpr std::string_view k_invoke = "invoke";
constexpr std::string_view k_block = "tool_call";

bool is_list_argument(TypeSet types) noexcept {
    return types.has(TypeSet::array) && !types.has(TypeSet::string);
}

ValueSchema schema_in(const ValueSchema& schema, TypeSet types, size_t index, std::string_view name) {
    const bool is_item = is_list_only(types) || (name == k_m3_item && !is_object_only(types));
    return is_item ? item_schema(schema, index) : member_schema(schema, name);
}

}  // namespace

void ElementParser::begin(std::string_view name) {
    is_open_ = true;
    name_ = name;
    n_arguments_ = 0;
    has_loose_ = false;
    deltas_.add_call(name);
}

void ElementParser::end() {
    while (!open_.empty()) close_innermost();
    put_repeated();
    deltas_.add(OutputDelta::Kind::tool_call, n_arguments_ == 0 ? "{}" : "}");
    is_open_ = false;
}

ElementTags ElementParser::wanted() const noexcept {
    constexpr Tags ends = Tags::invoke_close() | Tags::block_close();
    constexpr Tags bare_ends = Tags::bare_invoke_close() | Tags::bare_block_close();
    constexpr Tags begins = Tags::elements() | Tags::invoke_open() | Tags::invoke_without_bracket();
    if (open_.empty()) return ends | bare_ends | begins | Tags::bare_invoke_open();
    switch (open_.back().content) {
        case Content::elements:
            return ends | begins;
        case Content::unknown:
            return ends | bare_ends | Tags::elements();
        case Content::text:
            break;
    }
    return ends | bare_ends | Tags::value_close();
}

bool ElementParser::take(const ElementToken& token) {
    if (open_.empty()) return take_between(token);
    switch (open_.back().content) {
        case Content::elements:
            return take_in_elements(token);
        case Content::unknown:
            return take_unknown(token);
        case Content::text:
            break;
    }
    return take_in_text(token);
}

// Takes a token between arguments.
bool ElementParser::take_between(const ElementToken& token) {
    switch (token.kind) {
        case Kind::text:
        case Kind::space:
            if (has_loose_) loose_ += token.raw;
            return true;
        case Kind::mark:
            has_loose_ = true;
            loose_.clear();
            return true;
        case Kind::element_open:
            has_loose_ = false;
            begin_element(token.name);
            return true;
        case Kind::element_close:
            if (std::exchange(has_loose_, false) && !is_blank(loose_)) put_loose_element(token.name);
            return true;
        default:
            return take_end(token);
    }
}

// Takes a tag that ends the call. Returns whether it is that of the call itself.
bool ElementParser::take_end(const ElementToken& token) {
    end();
    return token.kind == Kind::invoke_close;
}

bool ElementParser::take_in_elements(const ElementToken& token) {
    OpenElement& inner = open_.back();
    switch (token.kind) {
        case Kind::text:
        case Kind::space:
            inner.element.text += token.raw;
            return true;
        case Kind::mark:
            inner.loose_begin = inner.element.text.size();
            return true;
        case Kind::element_open:
            inner.loose_begin = std::string::npos;
            begin_element(token.name);
            return true;
        case Kind::element_close:
            take_closer(token.name);
            return true;
        default:
            break;
    }
    if (token.kind == Kind::invoke_open) return take_end(token);
    const int64_t place = place_of_open(token.kind == Kind::invoke_close ? k_invoke : k_block);
    if (place < 0) return take_end(token);
    close_down_to(place);
    return true;
}

bool ElementParser::take_unknown(const ElementToken& token) {
    OpenElement& inner = open_.back();
    const TypeSet types = inner.types;
    const bool may_have_elements =
        types.is_empty() || types.has(TypeSet::object) || types.has(TypeSet::array);
    if (token.kind == Kind::element_open && may_have_elements) {
        inner.content = Content::elements;
        tail_.clear();
        return take_in_elements(token);
    }
    const bool is_end =
        token.has_mark && (token.kind == Kind::invoke_close || token.kind == Kind::block_close);
    const bool is_own = token.kind == Kind::element_close && token.name == inner.element.name;
    if (token.kind != Kind::space && !is_end && !is_own) become_text();
    return take_in_text(token);
}

// The innermost element, of which nothing was known, turns out to be text.
void ElementParser::become_text() {
    OpenElement& inner = open_.back();
    inner.content = Content::text;
    if (open_.size() > 1 || !inner.types.is_empty()) return;
    is_streamed_ = true;
    put_key(inner.element.name);
    deltas_.add(OutputDelta::Kind::tool_call, "\"");
}

bool ElementParser::take_in_text(const ElementToken& token) {
    const std::string& name = open_.back().element.name;
    switch (token.kind) {
        case Kind::space:
            tail_ += token.raw;
            return true;
        case Kind::element_close:
            if (token.name != name) break;
            close_innermost();
            return true;
        case Kind::invoke_close:
        case Kind::block_close: {
            const bool ends_call = token.kind == Kind::invoke_close;
            if (token.has_mark) {
                if (name != (ends_call ? k_invoke : k_block)) return take_end(token);
                close_innermost();
                return true;
            }
            const Tail kind = ends_call ? Tail::invoke_close : Tail::block_close;
            if (kind <= tail_kind_) flush_tail();
            tail_ += token.raw;
            tail_kind_ = kind;
            return true;
        }
        default:
            break;
    }
    flush_tail();
    put_value(token.raw);
    return true;
}

void ElementParser::begin_element(std::string_view name) {
    if (open_.size() == k_max_depth) return;
    OpenElement next;
    next.element.name = name;
    if (open_.empty()) {
        if (!repeated_.empty() && repeated_[0].name != name) put_repeated();
        next.schema = tools_.schema_of(name_, name);
    } else {
        const OpenElement& outer = open_.back();
        next.schema = schema_in(outer.schema, outer.types, outer.element.elements.size(), name);
    }
    next.types = types_in(next.schema);
    if (next.types.is_string_only()) {
        next.content = Content::text;
    } else {
        const bool may_be_text = next.types.has(TypeSet::string) || (next.types.is_empty() && open_.empty());
        next.content = may_be_text ? Content::unknown : Content::elements;
    }
    tail_.clear();
    tail_kind_ = Tail::space;
    is_streamed_ = open_.empty() && next.types.is_string_only();
    open_.push_back(std::move(next));
    if (!is_streamed_) return;
    put_key(name);
    deltas_.add(OutputDelta::Kind::tool_call, "\"");
}

// Returns the place of the innermost open element of a name; -1 if there is none.
int64_t ElementParser::place_of_open(std::string_view name) const noexcept {
    for (int64_t i = std::ssize(open_); i-- > 0;)
        if (open_[i].element.name == name) return i;
    return -1;
}

void ElementParser::close_down_to(int64_t place) {
    while (std::ssize(open_) > place) close_innermost();
}

// Takes a closing tag among elements. It closes the elements within its own. If none of its name is open, the opening tag may be
// missing after a mark; else the tag is left out.
void ElementParser::take_closer(std::string_view name) {
    const int64_t place = place_of_open(name);
    if (place >= 0) return close_down_to(place);
    OpenElement& inner = open_.back();
    const size_t begin = std::exchange(inner.loose_begin, std::string::npos);
    if (begin == std::string::npos) return;
    std::string& text = inner.element.text;
    if (is_blank(std::string_view(text).substr(begin))) return;
    inner.element.elements.push_back({std::string(name), text.substr(begin), {}});
    text.resize(begin);
}

void ElementParser::close_innermost() {
    flush_tail();
    OpenElement closed = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) {
        open_.back().loose_begin = std::string::npos;
        open_.back().element.elements.push_back(std::move(closed.element));
    } else if (std::exchange(is_streamed_, false)) {
        deltas_.add(OutputDelta::Kind::tool_call, "\"");
    } else {
        put_argument(std::move(closed.element), closed.schema, closed.types);
    }
}

// Puts an argument whose opening tag is missing: its text stands after the mark.
void ElementParser::put_loose_element(std::string_view name) {
    if (!repeated_.empty() && repeated_[0].name != name) put_repeated();
    const ValueSchema schema = tools_.schema_of(name_, name);
    put_argument({std::string(name), loose_, {}}, schema, types_in(schema));
}

void ElementParser::put_argument(Element argument, const ValueSchema& schema, TypeSet types) {
    if (is_list_argument(types)) {
        repeated_.push_back(std::move(argument));
        repeated_schema_ = schema;
        return;
    }
    put_key(argument.name);
    json_.clear();
    if (types.is_empty() && argument.elements.empty()) {
        json::append_quoted(json_, argument.text);  // words such as "true" are text here
    } else {
        append_element(json_, argument, schema);
    }
    deltas_.add(OutputDelta::Kind::tool_call, json_);
}

void ElementParser::put_repeated() {
    if (repeated_.empty()) return;
    put_key(repeated_[0].name);
    json_.clear();
    if (repeated_.size() == 1) {
        append_element(json_, repeated_[0], repeated_schema_);
    } else {
        append_elements(json_, repeated_, repeated_schema_);
    }
    deltas_.add(OutputDelta::Kind::tool_call, json_);
    repeated_.clear();
}

void ElementParser::put_key(std::string_view name) {
    json_ = n_arguments_++ == 0 ? "{" : ", ";
    json::append_quoted(json_, name);
    json_ += ": ";
    deltas_.add(OutputDelta::Kind::tool_call, json_);
}

void ElementParser::put_value(std::string_view text) {
    if (!is_streamed_) {
        open_.back().element.text += text;
        return;
    }
    json_.clear();
    json::append_escaped(json_, text);
    deltas_.add(OutputDelta::Kind::tool_call, json_);
}

void ElementParser::flush_tail() {
    put_value(tail_);
    tail_.clear();
    tail_kind_ = Tail::space;
}

void ElementParser::finish(std::string_view partial, bool was_cut) {
    if (was_cut) return;
    // Without a complete mark it is text.
    const std::string_view text = partial.starts_with(k_m3.mark) ? std::string_view() : partial;
    if (!open_.empty() && open_.back().content == Content::elements) {
        open_.back().element.text += text;
    } else if (!open_.empty() && !text.empty()) {
        if (open_.back().content == Content::unknown) become_text();
        flush_tail();
        put_value(text);
    } else if (!open_.empty() && tail_kind_ != Tail::space) {
        tail_.clear();
        tail_kind_ = Tail::space;
    }
    end();
}

}  // namespace minim::chat
