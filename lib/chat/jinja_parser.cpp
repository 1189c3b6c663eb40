// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_expressions.h"

namespace minim::chat::jinja {
namespace {

class Parser {
  public:
    explicit Parser(std::string_view source) : in_(source) {}

    ParsedTemplate run() {
        ParsedTemplate result;
        result.body = block({});
        if (in_.token().kind != Lexeme::end) in_.unexpected();
        result.names = in_.take_names();
        return result;
    }

  private:
    // Parses up to a block tag that begins with one of these words; the tag is left to the caller. Without words,
    // parses up to the end.
    Block block(std::initializer_list<std::string_view> ends) {
        const ExpressionParser::Level level(in_);
        Block statements;
        for (;;) {
            switch (in_.token().kind) {
                case Lexeme::end:
                    if (ends.size() > 0) in_.unexpected(format_text("'{}' is missing", *(ends.end() - 1)));
                    return statements;
                case Lexeme::data:
                    statements.push_back({StatementKind::data, in_.token().line, in_.token().text});
                    in_.skip();
                    break;
                case Lexeme::variable_begin: {
                    const size_t line = in_.token().line;
                    in_.skip();
                    ExprPtr value = in_.tuple_or_expression();
                    in_.expect(Lexeme::variable_end, "the end of the tag");
                    statements.push_back({StatementKind::print, line, {}, std::move(value)});
                    break;
                }
                case Lexeme::block_begin:
                    for (const std::string_view end : ends)
                        if (in_.is_word(end, 1)) return statements;
                    in_.skip();
                    statements.push_back(statement());
                    break;
                default:
                    in_.unexpected();
            }
        }
    }

    void end_tag() { in_.expect(Lexeme::block_end, "the end of the tag"); }

    // Parses "{% word %}", at which block() stopped.
    void closing(std::string_view word) {
        in_.expect(Lexeme::block_begin, "a block tag");
        in_.expect_word(word);
        end_tag();
    }

    Statement statement() {
        if (in_.token().kind != Lexeme::name) in_.unexpected("a statement is expected here");
        const size_t line = in_.token().line;
        const std::string word = in_.expect_name();
        if (word == "if") return conditional(line);
        if (word == "for") return loop(line);
        if (word == "set") return set(line);
        if (word == "macro") return macro(line);
        if (word == "break" || word == "continue") return leave(line, word);
        if (word == "generation") {  // marks what to train on
            end_tag();
            Statement result{StatementKind::pass_through, line};
            result.body = block({"endgeneration"});
            closing("endgeneration");
            return result;
        }
        refuse_template(line, format_text("the statement '{}' is not supported", word));
    }

    Statement leave(size_t line, std::string_view word) {
        if (n_loops_ == 0) refuse_template(line, format_text("'{}' outside a loop", word));
        end_tag();
        return {word == "break" ? StatementKind::leave : StatementKind::next, line};
    }

    Statement conditional(size_t line) {
        Statement result{StatementKind::conditional, line};
        ExprPtr condition = in_.tuple_or_expression();
        for (;;) {
            end_tag();
            const bool is_last = condition == nullptr;
            Block body = is_last ? block({"endif"}) : block({"elif", "else", "endif"});
            result.branches.push_back({std::move(condition), std::move(body)});
            in_.expect(Lexeme::block_begin, "a block tag");
            if (in_.take_word("endif")) break;
            if (in_.take_word("elif")) {
                condition = in_.tuple_or_expression();
            } else {
                in_.expect_word("else");
                condition = nullptr;
            }
        }
        end_tag();
        return result;
    }

    Statement loop(size_t line) {
        Statement result{StatementKind::loop, line};
        result.target = target(false);
        in_.expect_word("in");
        result.expr = in_.tuple_or_expression(false);
        if (in_.take_word("if")) result.condition = in_.expression();
        if (in_.is_word("recursive")) in_.refuse("recursive loops are not supported");
        end_tag();
        ++n_loops_;
        result.body = block({"else", "endfor"});
        --n_loops_;
        if (in_.is_word("else", 1)) {
            closing("else");
            result.other = block({"endfor"});
        }
        closing("endfor");
        return result;
    }

    Statement set(size_t line) {
        Statement result{StatementKind::set, line};
        result.target = target(true);
        if (in_.take_symbol("=")) {
            result.expr = in_.tuple_or_expression();
            end_tag();
            return result;
        }
        result.kind = StatementKind::set_block;
        if (in_.is_symbol("|")) in_.refuse("a filter on a set block is not supported");
        end_tag();
        result.body = block({"endset"});
        closing("endset");
        return result;
    }

    Target target(bool may_be_attribute) {
        std::vector<Target> parts;
        bool is_tuple = false;
        do {
            if (in_.is_word("in") || in_.is_symbol("=")) break;  // a comma at the end
            parts.push_back(single_target(may_be_attribute));
            if (in_.is_symbol(",")) is_tuple = true;
        } while (in_.take_symbol(","));
        if (parts.empty()) in_.unexpected("a name is expected here");
        if (!is_tuple) return std::move(parts.front());
        return {{}, {}, std::move(parts)};
    }

    Target single_target(bool may_be_attribute) {
        const ExpressionParser::Level level(in_);
        if (in_.take_symbol("(")) {
            Target inner = target(may_be_attribute);
            in_.expect_symbol(")");
            return inner;
        }
        Target result{in_.expect_name(), {}, {}};
        check_assignable(result.name);
        if (may_be_attribute && in_.take_symbol(".")) {
            result.attribute = in_.expect_name();
            in_.add_name(result.name);
        }
        return result;
    }

    void check_assignable(std::string_view name) const {
        constexpr std::string_view k_constants[] = {"true", "false", "none", "True", "False", "None", "loop"};
        if (std::find(std::begin(k_constants), std::end(k_constants), name) != std::end(k_constants))
            in_.refuse(format_text("'{}' cannot be set", name));
    }

    Statement macro(size_t line) {
        if (n_loops_ > 0 || in_macro_)
            refuse_template(line, "a macro inside a loop or macro is not supported");
        auto made = std::make_shared<Macro>();
        made->name = in_.expect_name();
        in_.expect_symbol("(");
        while (!in_.take_symbol(")")) {
            made->parameters.push_back(in_.expect_name());
            check_assignable(made->parameters.back());
            if (in_.take_symbol("=")) {
                made->defaults.push_back(in_.expression());
            } else if (!made->defaults.empty()) {
                in_.refuse("a parameter without a default follows one with a default");
            }
            if (!in_.is_symbol(")")) in_.expect_symbol(",");
        }
        end_tag();
        in_macro_ = true;
        made->body = block({"endmacro"});
        in_macro_ = false;
        closing("endmacro");
        Statement result{StatementKind::macro, line, made->name};
        result.macro = std::move(made);
        return result;
    }

    ExpressionParser in_;
    size_t n_loops_ = 0;
    bool in_macro_ = false;
};

}  // namespace

ParsedTemplate parse(std::string_view source) {
    return Parser(source).run();
}

}  // namespace minim::chat::jinja
