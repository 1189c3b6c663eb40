// SPDX-License-Identifier: Apache-2.0
// Parses a tool call of a MiniMax-M3 model from its invoke tag to its end. Arguments are elements: objects and lists are elements
// in elements. The arguments come as JSON: strings while they are written, other values when they are complete.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/argument_value.h"
#include "chat/delta_list.h"
#include "chat/element_lexer.h"
#include "chat/element_value.h"

namespace minim::chat {

class ElementParser {
  public:
    // `deltas` gets the calls.
    ElementParser(json::Value tools, DeltaList& deltas) : tools_(std::move(tools)), deltas_(deltas) {}

    const ToolSet& tools() const noexcept { return tools_; }
    bool is_open() const noexcept { return is_open_; }

    void begin(std::string_view name);
    // Return the tags to look for in an open call, and the name of the value whose end is one of them.
    ElementTags wanted() const noexcept;
    std::string_view value_name() const noexcept {
        return open_.empty() ? std::string_view() : std::string_view(open_.back().element.name);
    }
    // Takes a token in an open call. Returns false if the call has ended before it.
    bool take(const ElementToken& token);
    // Ends an open call with the output; `partial` is its last text if that may be the beginning of a tag. If the output was cut
    // within the call, the call stays open.
    void finish(std::string_view partial, bool was_cut);

  private:
    enum class Content : uint8_t {
        text,      // all up to the closing tag, with any other tags
        elements,  // elements, and text between them
        unknown,   // elements if it begins with one, else text
    };
    struct OpenElement {
        Element element;
        ValueSchema schema;
        TypeSet types;
        Content content = Content::text;
        size_t loose_begin = std::string::npos;  // of the text after a mark that has no tag
    };
    // The content of tail_, which may be the end of a value: whitespace only, or also this closer without its mark.
    enum class Tail : uint8_t { space, invoke_close, block_close };

    bool take_between(const ElementToken& token);
    bool take_in_text(const ElementToken& token);
    bool take_in_elements(const ElementToken& token);
    bool take_unknown(const ElementToken& token);
    bool take_end(const ElementToken& token);
    void begin_element(std::string_view name);
    void become_text();
    void take_closer(std::string_view name);
    int64_t place_of_open(std::string_view name) const noexcept;
    void close_down_to(int64_t place);
    void close_innermost();
    void put_loose_element(std::string_view name);
    void put_value(std::string_view text);
    void flush_tail();
    void put_key(std::string_view name);
    void put_argument(Element argument, const ValueSchema& schema, TypeSet types);
    void put_repeated();
    void end();

    const ToolSet tools_;
    DeltaList& deltas_;
    bool is_open_ = false;
    std::string name_;
    int64_t n_arguments_ = 0;

    std::vector<OpenElement> open_;  // outermost first
    bool is_streamed_ = false;  // the outermost element is a string, and its text comes while it is written
    std::string tail_;          // whitespace and closers that a text may end with
    Tail tail_kind_ = Tail::space;
    bool has_loose_ = false;  // between arguments, after a mark that has no tag
    std::string loose_;       // the text after that mark
    // Neighbours of one name whose property is an array: they are one list.
    std::vector<Element> repeated_;
    ValueSchema repeated_schema_;
    std::string json_;
};

}  // namespace minim::chat
