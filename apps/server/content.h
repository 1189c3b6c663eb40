// SPDX-License-Identifier: Apache-2.0
// The contents of messages, of all APIs, as the texts that the model reads. Parts that it cannot read (images, files) are refused in
// a new question. In the history and in what a tool returns they become a note in their place: the client cannot take them back,
// so the conversation would end there.
#pragma once

#include <string>

#include "fields.h"

namespace server {

enum class Unreadable { refuse, note };

// Returns the note in the place of a part: "[image left out: this model reads text only]".
std::string note_of(const std::string& type);

// Returns the text of one part of a list. Throws ApiError 400 for a type that no API defines.
std::string part_text(const Fields& part, Unreadable unreadable);

// Returns the text of a content: a string, or the parts of a list with `join` between them; "" if it is absent.
std::string content_text(const Fields& owner, const char* name, const char* join, Unreadable unreadable);

// What an entry of a conversation is, for new_question().
enum class Speaker { user, assistant, tool };

// Returns the index of the first entry that is a new question: the user's after the last answer, if no tool has answered since.
// Returns the size of the list if there is none.
template <typename SpeakerOf>
size_t new_question(const Json& entries, SpeakerOf speaker_of) {
    for (size_t i = entries.size(); i > 0; --i) {
        const Speaker speaker = speaker_of(entries[i - 1]);
        if (speaker == Speaker::tool) return entries.size();
        if (speaker == Speaker::assistant) return i;
    }
    return 0;
}

// Returns a text member of an entry that need not be an object; "" if there is none.
std::string text_member(const Json& entry, const char* name);

// Returns the arguments of a call as the template needs them: an object, or the text of one. Arguments that are neither, such as
// those of a call that was cut, become the member `arguments` of one: the model sees what was written.
Json call_arguments(const Json* given);

// Returns whether a text that a client adds beside tool results is not the user's own: <system-reminder>...</system-reminder>.
bool is_reminder(const std::string& text);

}  // namespace server
