import { open } from "../../src/index.js";
import { embedded } from "./embedded.js";
import { defineConformance } from "./suite.js";

defineConformance("embedded, sync", embedded(open, "sync"));
