// What cannot be undone is done in a child, and told about.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace kitty::testing {

// What `body` says, run in a forked child; how the child ended is added where it did not end well. A child
// that waits for ever is killed by SIGALRM.
inline std::string said_in_child(const std::function<std::string()>& body) {
  constexpr unsigned kLimitS = 60;
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitS);
    const std::string said = body();
    const bool whole = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(whole ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
  if (WIFSIGNALED(status)) return said + "killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? said : said + "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace kitty::testing
