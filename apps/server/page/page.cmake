# SPDX-License-Identifier: Apache-2.0
# Makes one document of the chat page's sources, and the Content-Security-Policy that allows its script and style by their hashes.
# Sets MINIM_CHAT_PAGE and MINIM_CHAT_PAGE_POLICY.
set(page_scripts vendor/marked.min.js vendor/highlight.min.js dom.js markdown.js store.js conversation.js server.js settings.js files.js
    message.js list.js answer.js main.js)
set(page_max_bytes 250000)

# Sets `out` to the hash of `text` as policies have it: 'sha256-BASE64'.
function(minim_policy_hash out text)
    set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    string(SHA256 hash "${text}")
    # 256 bits are 64 hexadecimal digits, 3 of which are 2 digits of base 64. Two zeros fill the last group, "=" stands for the last digit.
    set(result "")
    foreach(begin RANGE 0 63 3)
        string(SUBSTRING "${hash}00" ${begin} 3 group)
        math(EXPR high "0x${group} >> 6")
        math(EXPR low "0x${group} & 63")
        string(SUBSTRING ${digits} ${high} 1 first)
        string(SUBSTRING ${digits} ${low} 1 second)
        string(APPEND result ${first}${second})
    endforeach()
    string(SUBSTRING ${result} 0 43 result)
    set(${out} "'sha256-${result}='" PARENT_SCOPE)
endfunction()

set(page_script "")
foreach(name ${page_scripts})
    file(READ page/${name} text)
    string(APPEND page_script "${text}\n")
endforeach()
# In a script element, these would begin a comment or another element. They stand in strings and regular expressions only.
string(REPLACE "<!--" "\\x3c!--" page_script "${page_script}")
string(REPLACE "<script" "\\x3cscript" page_script "${page_script}")
string(REPLACE "</script" "\\x3c/script" page_script "${page_script}")
file(READ page/style.css page_style)
minim_policy_hash(script_hash "${page_script}")
minim_policy_hash(style_hash "${page_style}")
file(READ page/index.html MINIM_CHAT_PAGE)
string(REPLACE "@MINIM_PAGE_STYLE@" "${page_style}" MINIM_CHAT_PAGE "${MINIM_CHAT_PAGE}")
string(REPLACE "@MINIM_PAGE_SCRIPT@" "${page_script}" MINIM_CHAT_PAGE "${MINIM_CHAT_PAGE}")
# No markup is ever made from text (trusted-types), nothing is loaded, and requests go to this server only.
set(MINIM_CHAT_PAGE_POLICY "default-src 'none'; script-src ${script_hash}; style-src ${style_hash}; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'")
string(LENGTH "${MINIM_CHAT_PAGE}" page_bytes)
if(page_bytes GREATER page_max_bytes)
    message(FATAL_ERROR "The chat page has ${page_bytes} bytes, more than ${page_max_bytes}.")
endif()
string(FIND "${MINIM_CHAT_PAGE}" ")~page~\"" page_end)
if(NOT page_end EQUAL -1)
    message(FATAL_ERROR "The chat page has the characters )~page~\", which end its string literal.")
endif()
list(TRANSFORM page_scripts PREPEND page/ OUTPUT_VARIABLE page_sources)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_sources} page/style.css page/index.html)
