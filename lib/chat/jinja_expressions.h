// SPDX-License-Identifier: Apache-2.0
// Parses the expressions of chat templates, and hands out the tokens to the parser of statements (jinja_parser.cpp).
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja_ast.h"
#include "chat/jinja_lexer.h"

namespace minim::chat::jinja {

class ExpressionParser {
  public:
    // Deeper nesting is refused: it bounds the recursion of parsing, running and freeing a template.
    static constexpr size_t k_max_depth = 120;

    explicit ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {}

    const JinjaToken& token(size_t ahead = 0) const;
    bool is_symbol(std::string_view symbol, size_t ahead = 0) const;
    bool is_word(std::string_view word, size_t ahead = 0) const;
    void skip() { ++at_; }
    bool take_symbol(std::string_view symbol);
    bool take_word(std::string_view word);
    void expect_symbol(std::string_view symbol);
    void expect_word(std::string_view word);
    void expect(Lexeme kind, std::string_view what);
    std::string expect_name();
    [[noreturn]] void refuse(std::string_view why) const;
    [[noreturn]] void unexpected(std::string_view why = {}) const;

    // Counts a level of recursion while it lives.
    class Level {
      public:
        explicit Level(ExpressionParser& parser);
        ~Level() { --parser_.level_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        ExpressionParser& parser_;
    };

    ExprPtr expression();
    // Without `with_condition`, the expression in "a if b" ends before the "if", which belongs to the for statement.
    ExprPtr tuple_or_expression(bool with_condition = true);

    void add_name(const std::string& name) { names_.insert(name); }
    std::set<std::string, std::less<>> take_names() { return std::move(names_); }

  private:
    using Operand = ExprPtr (ExpressionParser::*)();

    ExprPtr make(ExprKind kind, size_t line, std::string name = {}) const;
    void add(Expr& parent, ExprPtr child) const;
    bool begins_expression() const;
    ExprPtr series(ExprKind kind, Operand operand, std::string_view separator);
    ExprPtr binary(Operand operand, std::span<const std::string_view> symbols);
    ExprPtr logical_or();
    ExprPtr logical_and();
    ExprPtr logical_not();
    std::string take_comparison();
    ExprPtr comparison();
    ExprPtr sum();
    ExprPtr concat();
    ExprPtr product();
    ExprPtr power();
    ExprPtr filtered();
    ExprPtr unary(bool with_filters);
    ExprPtr literal(Value value);
    ExprPtr primary();
    ExprPtr name();
    ExprPtr number();
    ExprPtr parenthesis();
    ExprPtr elements(ExprKind kind, std::string_view close);
    ExprPtr dictionary();
    ExprPtr postfix(ExprPtr value);
    ExprPtr dotted(ExprPtr value);
    ExprPtr subscript(ExprPtr value);
    ExprPtr call(ExprPtr value);
    void arguments(Expr& node);
    ExprPtr filters(ExprPtr value);
    ExprPtr test(ExprPtr value);

    std::vector<JinjaToken> tokens_;
    size_t at_ = 0;
    size_t level_ = 0;
    std::set<std::string, std::less<>> names_;
};

}  // namespace minim::chat::jinja
