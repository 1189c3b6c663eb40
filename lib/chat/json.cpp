#include "chat/json.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/python_text.h"

namespace minim::chat {
namespace {

// A literal that nlohmann-json hands over as floating point is an integer beyond 64 bits if it has digits
// only.
bool is_integer_literal(std::string_view literal) {
    if (literal.starts_with('-')) literal.remove_prefix(1);
    return literal.find_first_not_of("0123456789") == std::string_view::npos;
}

// Sorting instead of hashing keeps this n log n for keys chosen to collide.
void drop_repeated_keys(Value& object) {
    const size_t count = object.keys.size();
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const int compared = object.keys[a].compare(object.keys[b]);
        return compared != 0 ? compared < 0 : a < b;
    });

    std::vector<bool> repeated(count, false);
    bool any = false;
    for (size_t i = 0; i < count;) {
        const size_t first = order[i];
        size_t last = first;
        for (++i; i < count && object.keys[order[i]] == object.keys[first]; ++i) {
            last = order[i];
            repeated[last] = true;
            any = true;
        }
        if (last != first) std::swap(object.items[first], object.items[last]);
    }
    if (!any) return;

    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
        if (repeated[i]) continue;
        if (kept != i) {
            object.keys[kept] = std::move(object.keys[i]);
            object.items[kept] = std::move(object.items[i]);
        }
        ++kept;
    }
    object.keys.resize(kept);
    object.items.resize(kept);
}

// Receives nlohmann-json's events. `open` holds the containers not yet closed; their addresses are stable,
// because a container's parent gets no further element while the container is open.
class TreeBuilder {
  public:
    explicit TreeBuilder(std::string_view what) : what_(what) {}

    Value take() { return std::move(root_); }

    bool null() {
        add(Value::Kind::null);
        return true;
    }
    bool boolean(bool value) {
        add(Value::Kind::boolean).boolean = value;
        return true;
    }
    bool number_integer(int64_t value) {
        add(Value::Kind::number).text = std::to_string(value);
        return true;
    }
    bool number_unsigned(uint64_t value) {
        add(Value::Kind::number).text = std::to_string(value);
        return true;
    }
    bool number_float(double value, const std::string& literal) {
        add(Value::Kind::number).text = is_integer_literal(literal) ? literal : python_float(value);
        return true;
    }
    bool string(std::string& text) {
        add(Value::Kind::string).text = std::move(text);
        return true;
    }
    bool start_array(size_t /*unknown*/) { return open(Value::Kind::array); }
    bool start_object(size_t /*unknown*/) { return open(Value::Kind::object); }
    bool key(std::string& text) {
        open_.back()->keys.push_back(std::move(text));
        return true;
    }
    bool end_array() {
        open_.pop_back();
        return true;
    }
    bool end_object() {
        drop_repeated_keys(*open_.back());
        open_.pop_back();
        return true;
    }
    static bool binary(const std::vector<uint8_t>& /*bytes*/) { return false; }  // JSON text has none
    bool parse_error(size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) {
        constexpr int k_number_overflow =
            406;  // "number overflow parsing" in nlohmann-json's list of exceptions
        if (error.id == k_number_overflow) {
            fail(Status::invalid, "{}: number out of range before byte {}", what_, position);
        }
        fail(Status::invalid, "{}: not valid JSON at byte {}", what_, position);
    }

  private:
    Value& add(Value::Kind kind) {
        Value& slot = open_.empty() ? root_ : open_.back()->items.emplace_back();
        slot.kind = kind;
        return slot;
    }
    bool open(Value::Kind kind) {
        if (open_.size() == k_max_json_depth) {
            fail(Status::invalid, "{}: JSON nested deeper than {} levels", what_, k_max_json_depth);
        }
        open_.push_back(&add(kind));
        return true;
    }

    std::string_view what_;
    Value root_;
    std::vector<Value*> open_;
};

bool is_zero(std::string_view number) {
    return number == "0" || number == "0.0" || number == "-0.0";
}

}  // namespace

Value parse_json(std::string_view json, std::string_view what) {
    // nlohmann-json takes a NUL for the end of the text and would ignore what follows it.
    const size_t nul = json.find('\0');
    if (nul != std::string_view::npos) {
        fail(Status::invalid, "{}: not valid JSON at byte {}", what, nul + 1);
    }
    TreeBuilder builder(what);
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) {
        fail(Status::invalid, "{}: not valid JSON", what);
    }
    return builder.take();
}

const Value* find(const Value* value, std::string_view key) noexcept {
    if (value == nullptr || !value->is_object()) return nullptr;
    const auto at = std::find(value->keys.begin(), value->keys.end(), key);
    return at == value->keys.end() ? nullptr : &value->items[static_cast<size_t>(at - value->keys.begin())];
}

bool is_true(const Value* value) noexcept {
    if (value == nullptr) return false;
    switch (value->kind) {
        case Value::Kind::null:
            return false;
        case Value::Kind::boolean:
            return value->boolean;
        case Value::Kind::number:
            return !is_zero(value->text);
        case Value::Kind::string:
            return !value->text.empty();
        case Value::Kind::array:
        case Value::Kind::object:
            return !value->items.empty();
    }
    return false;
}

}  // namespace minim::chat
