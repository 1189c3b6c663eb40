// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_expressions.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_builtins.h"

namespace minim::chat::jinja {

// ---- tokens

const JinjaToken& ExpressionParser::token(size_t ahead) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}
bool ExpressionParser::is_symbol(std::string_view symbol, size_t ahead) const {
    return token(ahead).kind == Lexeme::symbol && token(ahead).text == symbol;
}
bool ExpressionParser::is_word(std::string_view word, size_t ahead) const {
    return token(ahead).kind == Lexeme::name && token(ahead).text == word;
}
bool ExpressionParser::take_symbol(std::string_view symbol) {
    if (!is_symbol(symbol)) return false;
    ++at_;
    return true;
}
bool ExpressionParser::take_word(std::string_view word) {
    if (!is_word(word)) return false;
    ++at_;
    return true;
}
void ExpressionParser::expect_symbol(std::string_view symbol) {
    if (!take_symbol(symbol)) unexpected(format_text("'{}' is expected here", symbol));
}
void ExpressionParser::expect_word(std::string_view word) {
    if (!take_word(word)) unexpected(format_text("'{}' is expected here", word));
}
void ExpressionParser::expect(Lexeme kind, std::string_view what) {
    if (token().kind != kind) unexpected(format_text("{} is expected here", what));
    ++at_;
}
std::string ExpressionParser::expect_name() {
    if (token().kind != Lexeme::name) unexpected("a name is expected here");
    return tokens_[at_++].text;
}

void ExpressionParser::refuse(std::string_view why) const {
    refuse_template(token().line, why);
}
void ExpressionParser::unexpected(std::string_view why) const {
    const std::string found = token().kind == Lexeme::end         ? "the end of the template"
                              : token().kind == Lexeme::block_end ? "the end of a block"
                              : token().text.empty()              ? "the end or beginning of a tag"
                                                                  : "'" + token().text + "'";
    refuse(format_text("unexpected {}{}{}", found, why.empty() ? "" : ": ", why));
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.level_ > k_max_depth)
        parser_.refuse(format_text("nested deeper than {} levels", k_max_depth));
}

// ---- expressions

ExprPtr ExpressionParser::make(ExprKind kind, size_t line, std::string name) const {
    return std::make_unique<Expr>(Expr{kind, line, std::move(name)});
}

void ExpressionParser::add(Expr& parent, ExprPtr child) const {
    if (child != nullptr) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > k_max_depth) refuse(format_text("nested deeper than {} levels", k_max_depth));
    parent.items.push_back(std::move(child));
}

ExprPtr ExpressionParser::tuple_or_expression(bool with_condition) {
    const size_t line = token().line;
    ExprPtr first = with_condition ? expression() : logical_or();
    if (!is_symbol(",")) return first;
    ExprPtr tuple = make(ExprKind::tuple, line);
    add(*tuple, std::move(first));
    while (take_symbol(",")) {
        if (!begins_expression()) break;
        add(*tuple, with_condition ? expression() : logical_or());
    }
    return tuple;
}

bool ExpressionParser::begins_expression() const {
    switch (token().kind) {
        case Lexeme::name:
            return !is_word("in") && !is_word("if") && !is_word("else");
        case Lexeme::string:
        case Lexeme::integer:
        case Lexeme::real:
            return true;
        case Lexeme::symbol:
            return is_symbol("(") || is_symbol("[") || is_symbol("{") || is_symbol("-") || is_symbol("+");
        default:
            return false;
    }
}

ExprPtr ExpressionParser::expression() {
    const Level level(*this);
    ExprPtr value = logical_or();
    while (is_word("if")) {
        ExprPtr result = make(ExprKind::conditional, token().line);
        ++at_;
        add(*result, logical_or());
        add(*result, std::move(value));
        add(*result, take_word("else") ? expression() : nullptr);
        value = std::move(result);
    }
    return value;
}

// Parses one operand, or several with this word or symbol between them, which become one node.
ExprPtr ExpressionParser::series(ExprKind kind, Operand operand, std::string_view separator) {
    const auto take = [&] { return take_word(separator) || take_symbol(separator); };
    ExprPtr first = (this->*operand)();
    if (!take()) return first;
    ExprPtr node = make(kind, first->line);
    add(*node, std::move(first));
    do add(*node, (this->*operand)());
    while (take());
    return node;
}

ExprPtr ExpressionParser::logical_or() {
    return series(ExprKind::logical_or, &ExpressionParser::logical_and, "or");
}

ExprPtr ExpressionParser::logical_and() {
    return series(ExprKind::logical_and, &ExpressionParser::logical_not, "and");
}

ExprPtr ExpressionParser::logical_not() {
    const Level level(*this);
    if (!is_word("not") || is_word("in", 1)) return comparison();
    ExprPtr node = make(ExprKind::logical_not, token().line);
    ++at_;
    add(*node, logical_not());
    return node;
}

std::string ExpressionParser::take_comparison() {
    for (const std::string_view symbol : {"==", "!=", "<", "<=", ">", ">="})
        if (take_symbol(symbol)) return std::string(symbol);
    if (take_word("in")) return "in";
    if (is_word("not") && is_word("in", 1)) {
        at_ += 2;
        return "not in";
    }
    return {};
}

ExprPtr ExpressionParser::comparison() {
    ExprPtr first = sum();
    std::string symbol = take_comparison();
    if (symbol.empty()) return first;
    ExprPtr node = make(ExprKind::comparison, first->line);
    add(*node, std::move(first));
    for (; !symbol.empty(); symbol = take_comparison()) {
        node->operators.push_back(symbol);
        add(*node, sum());
    }
    return node;
}

ExprPtr ExpressionParser::binary(Operand operand, std::span<const std::string_view> symbols) {
    ExprPtr left = (this->*operand)();
    for (;;) {
        const auto found = std::find_if(symbols.begin(), symbols.end(),
                                        [&](std::string_view symbol) { return is_symbol(symbol); });
        if (found == symbols.end()) return left;
        ExprPtr node = make(ExprKind::arithmetic, token().line, std::string(*found));
        ++at_;
        add(*node, std::move(left));
        add(*node, (this->*operand)());
        left = std::move(node);
    }
}

ExprPtr ExpressionParser::sum() {
    constexpr std::string_view k_symbols[] = {"+", "-"};
    return binary(&ExpressionParser::concat, k_symbols);
}

ExprPtr ExpressionParser::concat() {
    return series(ExprKind::concat, &ExpressionParser::product, "~");
}

ExprPtr ExpressionParser::product() {
    constexpr std::string_view k_symbols[] = {"*", "/", "//", "%"};
    return binary(&ExpressionParser::power, k_symbols);
}

ExprPtr ExpressionParser::power() {
    constexpr std::string_view k_symbols[] = {"**"};
    return binary(&ExpressionParser::filtered, k_symbols);
}

ExprPtr ExpressionParser::filtered() {
    return unary(true);
}

ExprPtr ExpressionParser::unary(bool with_filters) {
    const Level level(*this);
    ExprPtr value;
    if (is_symbol("-") || is_symbol("+")) {
        value = make(is_symbol("-") ? ExprKind::negate : ExprKind::plus, token().line);
        ++at_;
        add(*value, unary(false));
    } else {
        value = postfix(primary());
    }
    return with_filters ? filters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::literal(Value value) {
    ExprPtr node = make(ExprKind::literal, token().line);
    node->literal = std::move(value);
    return node;
}

ExprPtr ExpressionParser::primary() {
    const JinjaToken& first = token();
    switch (first.kind) {
        case Lexeme::name:
            return name();
        case Lexeme::string: {
            std::string all;
            while (token().kind == Lexeme::string) all += tokens_[at_++].text;
            return literal(text(all));
        }
        case Lexeme::integer:
        case Lexeme::real:
            return number();
        case Lexeme::symbol:
            if (take_symbol("(")) return parenthesis();
            if (take_symbol("[")) return elements(ExprKind::list, "]");
            if (take_symbol("{")) return dictionary();
            break;
        default:
            break;
    }
    unexpected("an expression is expected here");
}

ExprPtr ExpressionParser::name() {
    const size_t line = token().line;
    const std::string word = expect_name();
    if (word == "true" || word == "True") return literal(boolean(true));
    if (word == "false" || word == "False") return literal(boolean(false));
    if (word == "none" || word == "None") return literal(none());
    names_.insert(word);
    return make(ExprKind::name, line, word);
}

ExprPtr ExpressionParser::number() {
    const std::string digits = token().text;
    const char* const end = digits.data() + digits.size();
    Value value;
    if (token().kind == Lexeme::integer) {
        int64_t whole = 0;
        if (std::from_chars(digits.data(), end, whole).ec != std::errc()) refuse("a number is too large");
        value = integer(whole);
    } else {
        double fraction = 0;
        if (std::from_chars(digits.data(), end, fraction).ec != std::errc())
            refuse("a number is out of range");
        value = real(fraction);
    }
    ++at_;
    return literal(std::move(value));
}

ExprPtr ExpressionParser::parenthesis() {
    const size_t line = token().line;
    if (take_symbol(")")) return make(ExprKind::tuple, line);
    ExprPtr value = tuple_or_expression();
    expect_symbol(")");
    return value;
}

ExprPtr ExpressionParser::elements(ExprKind kind, std::string_view close) {
    ExprPtr node = make(kind, token().line);
    while (!take_symbol(close)) {
        add(*node, expression());
        if (!is_symbol(close)) expect_symbol(",");
    }
    return node;
}

ExprPtr ExpressionParser::dictionary() {
    ExprPtr node = make(ExprKind::dict, token().line);
    while (!take_symbol("}")) {
        add(*node, expression());
        expect_symbol(":");
        add(*node, expression());
        if (!is_symbol("}")) expect_symbol(",");
    }
    return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr value) {
    for (;;) {
        if (take_symbol(".")) {
            value = dotted(std::move(value));
        } else if (take_symbol("[")) {
            value = subscript(std::move(value));
        } else if (is_symbol("(")) {
            value = call(std::move(value));
        } else {
            return value;
        }
    }
}

ExprPtr ExpressionParser::dotted(ExprPtr value) {
    if (token().kind == Lexeme::integer) {
        ExprPtr node = make(ExprKind::subscript, token().line);
        add(*node, std::move(value));
        add(*node, number());
        return node;
    }
    ExprPtr node = make(ExprKind::attribute, token().line, expect_name());
    add(*node, std::move(value));
    return node;
}

ExprPtr ExpressionParser::subscript(ExprPtr value) {
    const size_t line = token().line;
    ExprPtr node = make(ExprKind::subscript, line);
    add(*node, std::move(value));
    if (!is_symbol(":")) {
        add(*node, tuple_or_expression());
        if (take_symbol("]")) return node;
    } else {
        add(*node, nullptr);
    }
    node->kind = ExprKind::slice;
    while (take_symbol(":") && node->items.size() < 4)
        add(*node, is_symbol(":") || is_symbol("]") ? nullptr : expression());
    while (node->items.size() < 4) add(*node, nullptr);
    expect_symbol("]");
    return node;
}

ExprPtr ExpressionParser::call(ExprPtr value) {
    ExprPtr node = make(ExprKind::call, token().line);
    add(*node, std::move(value));
    arguments(*node);
    return node;
}

void ExpressionParser::arguments(Expr& node) {
    expect_symbol("(");
    while (!take_symbol(")")) {
        if (is_symbol("*") || is_symbol("**")) refuse("* and ** in calls are not supported");
        if (token().kind == Lexeme::name && is_symbol("=", 1)) {
            std::string keyword = expect_name();
            ++at_;
            ExprPtr value = expression();
            node.depth = std::max(node.depth, value->depth + 1);
            node.keywords.emplace_back(std::move(keyword), std::move(value));
        } else {
            if (!node.keywords.empty()) unexpected("a positional argument follows one with a name");
            add(node, expression());
        }
        if (!is_symbol(")")) expect_symbol(",");
    }
    if (node.depth > k_max_depth) refuse(format_text("nested deeper than {} levels", k_max_depth));
}

ExprPtr ExpressionParser::filters(ExprPtr value) {
    for (;;) {
        if (take_symbol("|")) {
            ExprPtr node = make(ExprKind::filter, token().line, expect_name());
            if (!is_filter(node->name)) refuse(format_text("the filter '{}' is not supported", node->name));
            add(*node, std::move(value));
            if (is_symbol("(")) arguments(*node);
            value = std::move(node);
        } else if (take_word("is")) {
            value = test(std::move(value));
        } else if (is_symbol("(")) {
            value = call(std::move(value));
        } else {
            return value;
        }
    }
}

ExprPtr ExpressionParser::test(ExprPtr value) {
    const size_t line = token().line;
    const bool negated = take_word("not");
    ExprPtr node = make(ExprKind::test, line, expect_name());
    if (!is_test(node->name)) refuse(format_text("the test '{}' is not supported", node->name));
    add(*node, std::move(value));
    const bool ends = is_word("else") || is_word("or") || is_word("and") || is_word("is") || is_word("in") ||
                      is_word("if") || is_word("not");
    if (is_symbol("(")) {
        arguments(*node);
    } else if (!ends && begins_expression() && !is_symbol("-") && !is_symbol("+")) {
        add(*node, postfix(primary()));
    }
    if (!negated) return node;
    ExprPtr result = make(ExprKind::logical_not, line);
    add(*result, std::move(node));
    return result;
}

}  // namespace minim::chat::jinja
