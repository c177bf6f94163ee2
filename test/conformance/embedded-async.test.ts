import { embedded } from "./embedded.js";
import { defineConformance } from "./suite.js";

defineConformance("embedded, async", embedded("async"));
