// Text in Kubernetes manifests: YAML scalars, and words of a container's command. kubernetes_manifests.cpp calls these
// functions. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Returns true if the whole text is valid UTF-8. YAML and JSON, and so Kubernetes, cannot contain other bytes.
bool is_utf8(std::string_view text);

// Returns a YAML scalar that every parser reads as this string. A text that a parser could read in another way is quoted: the
// word no becomes "no", and the number 12 becomes "12". The result has one line. `text` must be valid UTF-8.
std::string yaml_text(std::string_view text);

// Returns the text for a comment line. Characters that could end the line become escape sequences.
std::string yaml_comment(std::string_view text);

// Escapes a word of a container's command. The kubelet replaces $(NAME) by the value of the variable NAME, and $$ by $. This
// function therefore doubles each $: $(date) becomes $$(date).
std::string container_word(std::string_view word);

// Adds `columns` spaces before each line that is not empty.
std::string indented(std::string_view lines, int columns);

}  // namespace ddprun
