/** npm run build */

import { build, checkNode, install } from "./setup.mjs";

checkNode();
install();
await build();
