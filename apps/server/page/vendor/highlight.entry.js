// SPDX-License-Identifier: Apache-2.0
// What highlight.min.js is made of: the core of highlight.js and these languages (README.md).
import hljs from "./src/highlight.js";
import bash from "./src/languages/bash.js";
import c from "./src/languages/c.js";
import cmake from "./src/languages/cmake.js";
import cpp from "./src/languages/cpp.js";
import css from "./src/languages/css.js";
import diff from "./src/languages/diff.js";
import go from "./src/languages/go.js";
import ini from "./src/languages/ini.js";
import java from "./src/languages/java.js";
import javascript from "./src/languages/javascript.js";
import json from "./src/languages/json.js";
import makefile from "./src/languages/makefile.js";
import markdown from "./src/languages/markdown.js";
import python from "./src/languages/python.js";
import rust from "./src/languages/rust.js";
import sql from "./src/languages/sql.js";
import typescript from "./src/languages/typescript.js";
import xml from "./src/languages/xml.js";
import yaml from "./src/languages/yaml.js";

const languages = { bash, c, cmake, cpp, css, diff, go, ini, java, javascript, json, makefile, markdown, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);
hljs.registerAliases(["cuda", "cu", "cuh"], { languageName: "cpp" });
export { hljs };
