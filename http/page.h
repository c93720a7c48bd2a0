// The page at /: http/page.html as the build put it into the binary. It holds no figures of its own; in the
// browser it fetches the telemetry path each second and draws what that says.
#pragma once

#include <string>
#include <string_view>

namespace kitty::http {

// Nothing but the page's own style and script, and connections to the agent that sent it. Trusted types: the
// script shows other processes' environments, and a browser that knows these refuses to take any text for
// markup.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

// `telemetry_path` has passed check_telemetry_path(), so nothing in it needs escaping.
[[nodiscard]] std::string page(std::string_view telemetry_path);

}  // namespace kitty::http
