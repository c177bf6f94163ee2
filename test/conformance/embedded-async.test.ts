import { openAlone } from "../support/alone.js";
import { embedded } from "./embedded.js";
import { defineConformance } from "./suite.js";

defineConformance("embedded, async", embedded(openAlone, "async"));
