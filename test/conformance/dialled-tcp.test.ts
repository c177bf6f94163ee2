import { defineOver } from "./dialled.js";

defineOver("tcp");
